"""A run without ranks: its worker group does not start, or does not restart.

stuck start SCHEDULING, RESCHEDULING, RESTARTING or RESIZING continuously for 120 s, and the run
does not wait for resources before its first attempt

Ray Train gives a worker group a minute to start and then retries, without limit and without
counting a failure. A run that has never been up may wait for a node that is being made, and reports
what it waits for: see `training.telemetry.ray_train.end_reason.lacking`. A run that was up has lost
a node that does not come back.
"""

from __future__ import annotations

from cockpit.format import in_seconds
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.model.alert import Finding, Severity
from cockpit.model.run import RunState
from cockpit.model.text import one_line
from cockpit.store.run import RunView

BETWEEN = frozenset(
    {RunState.SCHEDULING, RunState.RESCHEDULING, RunState.RESTARTING, RunState.RESIZING}
)
"""The states of an attempt that is starting. A preempted attempt still trains."""
LACKING = "waits for resources"
"""The beginning of the message of a run that needs more than the complete cluster has."""


def find(run: RunView, now_s: float, limits: Thresholds) -> list[Finding]:
    since_s = between_since(run)
    lacks = run.message.startswith(LACKING)
    if since_s is None or (lacks and not run.attempts):
        return []
    age_s = now_s - since_s
    if age_s <= limits.between_s:
        return []
    has_ended = any(attempt.ended_s is not None for attempt in run.attempts.values())
    started = "restarted" if has_ended else "started"
    reason = f": {one_line(run.message, 160)}" if run.message else ""
    job = run.submission_id or "JOB"
    return [
        Finding(
            "stuck-start",
            f"run {run.id}",
            Severity.WARNING,
            f"The ranks have not {started} after {in_seconds(age_s, 0)}; the run is "
            f"{run.state.value}{reason}",
            f"Threshold: {in_seconds(limits.between_s)}; before the first attempt only if the idle "
            "cluster would have enough resources",
            "See why pods are missing: cockpit pods, cockpit events; or add workers: cockpit scale"
            if lacks
            else "See what resources are free: cockpit exec HEAD -- ray status; and which job uses "
            f"the rest: cockpit jobs. If no job does: cockpit stop {job}, and launch it again",
            run.id,
        )
    ]


def between_since(run: RunView) -> float | None:
    """Since when no attempt is up, by the run's states; None while one is, or when it is over."""
    if run.state not in BETWEEN:
        return None
    since_s = None
    for at_s, state in reversed(run.states):
        if state not in BETWEEN:
            break
        since_s = at_s
    return since_s
