"""A run that has no ranks: its worker group does not come up, or does not come back.

    stuck start   SCHEDULING, RESCHEDULING, RESTARTING or RESIZING without a break for 120 s, and
                  it does not say that it waits for resources that the cluster lacks

Ray Train gives a worker group a minute to come up and then tries again, without end and without
counting it as a failure. That the cluster is too small is said by the run itself, and what to do
about it is another thing: see `training.telemetry.ray_train.end_reason.lacking`.
"""

from __future__ import annotations

from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.model.alert import Finding, Severity
from cockpit.model.run import RunState
from cockpit.model.text import one_line
from cockpit.store.run import RunView

BETWEEN = frozenset(
    {RunState.SCHEDULING, RunState.RESCHEDULING, RunState.RESTARTING, RunState.RESIZING}
)
"""The states in which an attempt is on its way. One that is preempted still trains."""
LACKING = "waits for resources"
"""How the message of a run begins that needs more than the whole cluster has."""


def find(run: RunView, now_s: float, limits: Thresholds) -> list[Finding]:
    since_s = between_since(run)
    if since_s is None or run.message.startswith(LACKING):
        return []
    age_s = now_s - since_s
    if age_s <= limits.between_s:
        return []
    which = "again" if run.attempts else "yet"
    reason = f": {one_line(run.message, 160)}" if run.message else ""
    job = run.submission_id or "JOB"
    return [
        Finding(
            "stuck-start",
            f"run {run.id}",
            Severity.WARNING,
            f"The ranks are not up {which} after {age_s:.0f} s, the run is {run.state.value}"
            f"{reason}",
            f"Threshold: {limits.between_s:g} s, if the idle cluster would have enough resources",
            "See what is free: cockpit exec HEAD -- ray status; and which job has the rest: "
            f"cockpit jobs. If none has: cockpit stop {job}, and launch it again",
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
