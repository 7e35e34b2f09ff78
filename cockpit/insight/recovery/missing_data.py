"""The unobserved parts of a recovery, and why, a line each."""

from __future__ import annotations

from cockpit.format import in_seconds
from cockpit.insight.recovery.fault_impact import FaultImpact, next_fault_s
from cockpit.insight.recovery.pace import CHECK_EVERY_S, Pace
from cockpit.model.drill import Drill, Instant, Milestone
from cockpit.store.run import RunView
from cockpit.store.store import Store

SOURCES = ("backend", "backend:pods", "ray", "telemetry", "train")
"""The sources of milestones."""
FAR_S = 3_600.0


def gaps(store: Store, drill: Drill, instants: tuple[Instant, ...]) -> list[str]:
    """Sources with gaps, up to the last milestone.

    While the throughput is not back: up to the end of the search for it.
    """
    until_s = drill.injected_s + CHECK_EVERY_S
    if _has_all(instants):
        until_s = drill.injected_s + max(i.after_s for i in instants)
    lines = []
    for name in SOURCES:
        for gap in store.past.gaps.get(name, ()):
            began_s = gap.began_s - drill.injected_s
            if gap.began_s >= until_s or (gap.ended_s or until_s) <= drill.injected_s:
                continue
            if gap.ended_s is None:
                lines.append(f"{name} has sent no data since {in_seconds(began_s, 1)}: {gap.why}")
            else:
                ended_s = gap.ended_s - drill.injected_s
                lines.append(
                    f"{name} sent no data from {in_seconds(began_s, 1)} to "
                    f"{in_seconds(ended_s, 1)}: {gap.why}"
                )
    return lines


def unreported(run: RunView, pace: Pace, way: FaultImpact) -> list[str]:
    """Facts that the run does not report."""
    if way.hit is None:
        return []
    if not len(run.progress):
        return ["no rank reports its steps: the first new step is that of the first report"]
    if pace.rate is None:
        return ["too few records before the fault to know the throughput"]
    return []


def cut_short(store: Store, drill: Drill, instants: tuple[Instant, ...]) -> list[str]:
    next_s = next_fault_s(store, drill, drill.injected_s) - drill.injected_s
    if _has_all(instants) or next_s > FAR_S:
        return []
    return [f"the next fault came after {in_seconds(next_s, 1)}, before the throughput recovered"]


def _has_all(instants: tuple[Instant, ...]) -> bool:
    return any(instant.milestone is Milestone.THROUGHPUT_BACK for instant in instants)
