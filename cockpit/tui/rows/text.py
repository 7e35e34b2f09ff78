"""Text and colours of the store's states. Styles are those of `theme.Palette`."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

from textual.content import Content

from cockpit import format
from cockpit.model.cluster import ClusterHealth, ClusterRef, Pod, PodPhase, WorkerGroup
from cockpit.model.run import Job, JobStatus, RunState
from cockpit.model.text import one_line
from cockpit.store import attempt_events
from cockpit.store.run import AttemptView, RunView
from cockpit.store.selectors import age_s, stale_sources
from cockpit.tui.keys import shown_key
from cockpit.tui.terminal.cells import shorten
from cockpit.tui.view_state import ViewState

HEALTH_STYLES = {
    ClusterHealth.READY: "good",
    ClusterHealth.STARTING: "warning",
    ClusterHealth.DEGRADED: "warning",
    ClusterHealth.DOWN: "bad",
    ClusterHealth.SUSPENDED: "accent",
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


def run_style(run: RunView) -> str:
    if gave_up(run):
        return "bad"
    return _GOING.get(run.state, "bad" if run.state in _BROKEN else "warning")


def gave_up(run: RunView) -> bool:
    """Whether its training function stopped early, such as on a loss that is NaN.

    Ray reports such a run as FINISHED; `training.telemetry` adds the reason.
    """
    return run.state is RunState.FINISHED and run.message.startswith("stopped")


def run_status(run: RunView) -> str:
    return "STOPPED EARLY" if gave_up(run) else run.state.value


def no_run(state: ViewState) -> str:
    """Why there is no run, and what to do."""
    return " ".join(no_run_lines(state))


def no_run_lines(state: ViewState) -> tuple[str, ...]:
    """The sentences of `no_run`, for a narrow panel."""
    job = job_to_run(state)
    if job is None:
        return ("No run yet.", f"Press {shown_key('launch')} to launch a job.")
    since = "" if job.started_s is None else f" for {format.age(age_s(job.started_s, state.now_s))}"
    return (
        "No run yet.",
        f"Job {one_line(job.id)} is {job.status.value}{since}.",
        f"Press {shown_key('all_logs')} for its logs.",
    )


def job_to_run(state: ViewState) -> Job | None:
    """The newest job that is not over: its script may still import what it needs."""
    return next((j for j in reversed(state.store.jobs.values()) if not j.status.is_over), None)


def waiting(text: str) -> str:
    """The text, and the command that checks the connections."""
    return f"{text} If this takes more than a minute, run: cockpit doctor"


def last_failed_attempt(run: RunView) -> AttemptView | None:
    """The newest attempt that ended with a reason."""
    failed = [number for number, attempt in run.attempts.items() if attempt.reason]
    return run.attempts[max(failed)] if failed else None


def attempt_end(reason: str, at_s: float | None = None) -> str:
    return attempt_events.attempt_end(reason, "" if at_s is None else clock(at_s))


def number_style(value: float | None, style: str = "") -> str:
    """`bad` for a number that is NaN or infinite."""
    return "bad" if value is not None and not math.isfinite(value) else style


def pod_style(pod: Pod) -> str:
    if pod.phase is PodPhase.FAILED:
        return "bad"
    if pod.phase in (PodPhase.TERMINATING, PodPhase.PENDING, PodPhase.UNKNOWN):
        return "warning"
    if pod.phase is PodPhase.SUCCEEDED:
        return "muted"
    return "good" if pod.ready else "warning"


def clock(at_s: float) -> str:
    """The time of day where the screen is."""
    return time.strftime("%H:%M:%S", time.localtime(at_s))


def cluster_name(ref: ClusterRef, room: int) -> str:
    """Context, namespace and name in at most `room` cells; the longest is cut first, the name last.

    A cluster outside Kubernetes is `local:demo`.
    """
    if not ref.context and not ref.namespace:
        return shorten(str(ref), room)
    parts = [part for part in (ref.context, ref.namespace, ref.name) if part]
    for least in (10, 6, 3):
        while len(" / ".join(parts)) > room:
            at = max(range(len(parts) - 1), key=lambda i: len(parts[i]), default=0)
            if len(parts[at]) <= least:
                break
            parts[at] = shorten(parts[at], len(parts[at]) - 1 - parts[at].count("…"))
    return shorten(" / ".join(parts), room)


def group_notes(groups: Iterable[WorkerGroup]) -> list[str]:
    """Facts that the counts of the groups do not show."""
    return [f"{group.name}: {group.note}" for group in groups if group.note]


def stale_source_rows(view_state: ViewState) -> list[tuple[str, float | None, str]]:
    """Sources without new data. A log is left out: its own pane shows its state."""
    found = stale_sources(view_state.store, view_state.now_s)
    return [(name, age, why) for name, age, why in found if ":" not in name]


def facts_text(facts: Sequence[tuple[str, str]], *, bad: str = "") -> Content:
    """Names and texts in two columns; a name without a text is a heading. `bad`: of an error."""
    width = min(40, max((len(name) for name, text in facts if text), default=0))
    return Content("\n").join(
        Content.assemble(
            Content.styled(f"{name.ljust(width)}  ", "$muted"),
            Content.styled(text, "$error" if name == bad else ""),
        )
        if text
        else Content.styled(f"\n{name}", "bold")
        for name, text in facts
    )


def stale_message(name: str, age_s: float | None, why: str) -> str:
    """One source that is behind."""
    for_how_long = f"stale for {format.age(age_s)}" if age_s is not None else "no data yet"
    return f"{name}: {for_how_long}" + (f" · {why}" if why else "")
