"""Words and colours for what the store knows. Style words are those of `theme.Palette`."""

from __future__ import annotations

import time

from cockpit.model.cluster import ClusterHealth, Pod, PodPhase
from cockpit.model.drill import Recovery
from cockpit.model.run import JobStatus, RunState
from cockpit.tui import format

HEALTH_STYLES = {
    ClusterHealth.READY: "good",
    ClusterHealth.STARTING: "warning",
    ClusterHealth.DEGRADED: "warning",
    ClusterHealth.DOWN: "bad",
    ClusterHealth.UNKNOWN: "muted",
}

_GOING = {RunState.RUNNING: "good", RunState.FINISHED: "good", RunState.UNKNOWN: "muted"}
_BROKEN = {RunState.ERRORED, RunState.ABORTED}

JOB_STYLES = {
    JobStatus.PENDING: "warning",
    JobStatus.RUNNING: "good",
    JobStatus.SUCCEEDED: "muted",
    JobStatus.STOPPED: "muted",
    JobStatus.FAILED: "bad",
}


def run_style(state: RunState) -> str:
    return _GOING.get(state, "bad" if state in _BROKEN else "warning")


def pod_style(pod: Pod) -> str:
    if pod.phase is PodPhase.FAILED:
        return "bad"
    if pod.phase in (PodPhase.TERMINATING, PodPhase.PENDING, PodPhase.UNKNOWN):
        return "warning"
    if pod.phase is PodPhase.SUCCEEDED:
        return "muted"
    return "good" if pod.ready else "warning"


def steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count:,} steps"


def recovered(measured: Recovery) -> str:
    """How a drill went, in one sentence."""
    drill = measured.drill
    if measured.first_step_s is None:
        why = f": {measured.reason}" if measured.reason else ""
        return f"the run did not recover from {drill.fault} of {drill.target}{why}"
    lost = measured.steps_lost
    tail = f", {steps(lost)} lost" if lost is not None else ""
    took = format.duration(measured.first_step_s)
    return f"recovered from {drill.fault} of {drill.target} in {took}{tail}"


def clock(at_s: float) -> str:
    """The time of day where the screen is."""
    return time.strftime("%H:%M:%S", time.localtime(at_s))


def silent(name: str, age_s: float | None, why: str) -> str:
    """One source that is behind."""
    for_how_long = f"silent for {format.age(age_s)}" if age_s is not None else "not heard yet"
    return f"{name}: {for_how_long}" + (f" · {why}" if why else "")
