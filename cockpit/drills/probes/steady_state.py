"""The steady state in the store. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from cockpit.drills.plan.plan import ProbeSpec
from cockpit.format import in_seconds
from cockpit.insight.metrics.robust_statistics import median, window
from cockpit.insight.recovery.loss_continuity import LEAST, losses_known
from cockpit.insight.recovery.measurement import Reading, recovery
from cockpit.model.drill import Drill
from cockpit.store.run import RunView
from cockpit.store.selectors import going_run
from cockpit.store.store import Store

WINDOW_S = 10.0
"""Throughput is the median over this many seconds."""
SILENT_S = 15.0
"""With no sample for so long, throughput is nothing."""


class Moment(Struct, frozen=True):
    """The time of the evaluation, and the drills injected so far."""

    now_s: float
    drills: tuple[Drill, ...]
    readings: Mapping[str, Reading]
    """How the run was just before each drill, by the drill's id."""

    @property
    def drill(self) -> Drill | None:
        """The first that hit a run: what was before it was the steady state."""
        return next((drill for drill in self.drills if drill.run_id), None)


Answer = tuple[bool | None, str]
Check = Callable[[Store, ProbeSpec, Moment], Answer]


def replicas_ready(store: Store, spec: ProbeSpec, moment: Moment) -> Answer:
    groups = [group for group in store.groups.values() if not group.suspended]
    if not groups:
        return None, "no worker group is known"
    ready, desired = (sum(getattr(g, name) for g in groups) for name in ("ready", "desired"))
    # A pod that was killed counts as ready until it is checked.
    short = [group for group in groups if group.ready < group.desired]
    return not short, f"{ready} of {desired} ready"


def training(store: Store, spec: ProbeSpec, moment: Moment) -> Answer:
    run = _run(store, moment)
    if run is None:
        return None, "there is no run"
    if run.state.is_over:
        return False, f"the run is {run.state.value}"
    if not len(run.progress):
        return None, "no step was seen yet"
    stale_s = moment.now_s - run.progress.times[-1]
    drill = moment.drill
    if drill is not None and run.progress.times[-1] <= drill.injected_s:
        return (
            False,
            f"no step since the fault, {in_seconds(moment.now_s - drill.injected_s, 0)} ago",
        )
    if stale_s > SILENT_S:
        return False, f"no step for {in_seconds(stale_s, 0)}"
    return True, f"step {int(run.progress.values[-1])}"


def throughput(store: Store, spec: ProbeSpec, moment: Moment) -> Answer:
    """In percent of before the fault; before there is one, whether there is any."""
    run = _run(store, moment)
    if run is None:
        return None, "there is no run"
    curve = run.curves["samples_per_s"]
    drill = moment.drill
    since_s = drill.injected_s if drill is not None else 0.0
    if not len(curve) or curve.times[-1] <= since_s:
        stale_s = moment.now_s - since_s
        if drill is not None and stale_s > SILENT_S:
            return False, f"no sample since the fault, {in_seconds(stale_s, 0)} ago"
        return None, "no throughput is known yet"
    if (stale_s := moment.now_s - curve.times[-1]) > SILENT_S:
        return False, f"no sample for {in_seconds(stale_s, 0)}"
    begin_s = max(since_s, curve.times[-1] - WINDOW_S, _attempt_began_s(run))
    rate = median(window(curve, begin_s)[1] or [curve.values[-1]])
    before = moment.readings[drill.id].samples_per_s if drill is not None else None
    if drill is None:
        return rate > 0, f"{rate:.4g} samples/s"
    if not before:
        return None, f"{rate:.4g} samples/s, and the throughput before the fault is unknown"
    percent = 100 * rate / before
    holds = percent >= (spec.limit if spec.limit is not None else 90.0)
    return holds, f"{percent:.0f} % ({rate:.4g} of {before:.4g} samples/s)"


def loss_continuous(store: Store, spec: ProbeSpec, moment: Moment) -> Answer:
    """Before there is a fault, whether there is a curve that may continue."""
    drill = moment.drill
    if drill is None:
        run = _run(store, moment)
        if run is None:
            return None, "there is no run"
        count = losses_known(run)
        return count >= LEAST or None, f"{count} losses known, of {LEAST} at least"
    found = recovery(store, drill, moment.readings.get(drill.id)).continuity
    if found is None:
        return None, "too few losses are known before and after"
    return found.continuous, f"{found.before:.4g} before, {found.after:.4g} after"


def checkpoint_age(store: Store, spec: ProbeSpec, moment: Moment) -> Answer:
    run = _run(store, moment)
    if run is None:
        return None, "there is no run"
    if run.checkpoint_s is None:
        return None, "no checkpoint was seen"
    age_s = max(0.0, moment.now_s - run.checkpoint_s)
    return age_s <= (spec.limit if spec.limit is not None else 600.0), in_seconds(age_s, 0)


def _run(store: Store, moment: Moment) -> RunView | None:
    """The run that was hit, else the active one."""
    if moment.drill is not None:
        return store.runs.get(moment.drill.run_id)
    return going_run(store)


def _attempt_began_s(run: RunView) -> float:
    attempt = run.attempt
    return 0.0 if attempt is None or attempt.first_step_s is None else attempt.first_step_s


CHECKS: dict[str, Check] = {
    "replicas-ready": replicas_ready,
    "training": training,
    "throughput": throughput,
    "loss-continuous": loss_continuous,
    "checkpoint-age": checkpoint_age,
}
"""By the kind of probe."""
