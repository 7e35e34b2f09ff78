"""Drills against earlier ones of the same kind, and what of a run's curves belongs to a drill."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from cockpit.insight.metrics.robust_statistics import median, spread, window
from cockpit.model.drill import DrillRecord, KeptCurve, Milestone, Recovery, Verdict
from cockpit.store.store import Store

EARLIER_AT_LEAST = 3
"""Fewer drills have no spread worth judging by."""
NEWEST = 30
"""Earlier drills that count: what was long ago was another cluster."""
SPREADS = 3.0
FLOOR_S, FLOOR_SHARE = 1.0, 0.1
"""A difference of less than a second or a tenth is no regression, however alike the others were."""

CURVES = ("loss", "samples_per_s")
BEFORE_S = 60.0
POINTS = 600


class Kind(Struct, frozen=True):
    """The properties that make two drills comparable."""

    fault: str
    workload: str
    profile: str


class Measure(Struct, frozen=True):
    """One number of a drill, with those of the earlier ones."""

    name: str
    unit: str
    value: float
    earlier: int
    """How many earlier drills had it."""
    median: float | None = None
    spread: float | None = None
    """Their scaled median absolute deviation."""
    regression: bool = False
    """It is worse than their median by more than 3 spreads, a tenth and a second."""


def kind_of(record: DrillRecord) -> Kind:
    drill = record.drills[0] if record.drills else None
    if drill is None:
        return Kind(record.fault, "", "")
    return Kind(record.fault, drill.workload, drill.profile)


def alike(record: DrillRecord, others: Sequence[DrillRecord]) -> list[DrillRecord]:
    """Those of the same kind that were before it and were measured, the newest last."""
    kind = kind_of(record)
    found = [
        other
        for other in others
        if other.began_s < record.began_s
        and other.verdict in (Verdict.PASSED, Verdict.FAILED)
        and other.recoveries
        and kind_of(other) == kind
    ]
    return sorted(found, key=lambda other: other.began_s)[-NEWEST:]


def compared(record: DrillRecord, others: Sequence[DrillRecord]) -> tuple[Measure, ...]:
    """The measurements, each compared with those of similar drills."""
    own = numbers(record)
    earlier = [numbers(other) for other in alike(record, others)]
    found = []
    for name, value in own.items():
        before = [of[name] for of in earlier if name in of]
        found.append(_measure(name, value, before))
    return tuple(found)


def numbers(record: DrillRecord) -> dict[str, float]:
    """The comparable numbers: of several drills at once, the worst of each. Steps, else seconds."""
    worst: dict[str, float] = {}
    for measured in record.recoveries:
        for name, value in _of(measured).items():
            if value is not None and math.isfinite(value):
                worst[name] = max(worst.get(name, value), value)
    return worst


def _of(measured: Recovery) -> dict[str, float | None]:
    return {
        "detected": measured.detected_s,
        "pod ready": measured.pod_ready_s,
        "workers started": measured.restarted_s,
        "first new step": measured.first_step_s,
        "caught up": measured.reached(Milestone.CAUGHT_UP),
        "throughput back": measured.reached(Milestone.THROUGHPUT_BACK),
        "seconds lost": measured.seconds_lost,
        STEPS: None if measured.steps_lost is None else float(measured.steps_lost),
    }


STEPS = "steps lost"


def _measure(name: str, value: float, before: Sequence[float]) -> Measure:
    unit = "" if name == STEPS else "s"
    if not before:
        return Measure(name, unit, value, 0)
    middle = median(before)
    around = spread(before, middle)
    floor = max(FLOOR_S, FLOOR_SHARE * middle)
    worse = len(before) >= EARLIER_AT_LEAST and value > middle + max(SPREADS * around, floor)
    return Measure(name, unit, value, len(before), middle, around, worse)


def curves(store: Store, run_id: str, begin_s: float, end_s: float) -> tuple[KeptCurve, ...]:
    """The run's loss and throughput in that time, thinned to the limit of a file."""
    run = store.runs.get(run_id)
    if run is None:
        return ()
    found = []
    for name in CURVES:
        times, values = window(run.curves[name], begin_s, end_s)
        stride = max(1, math.ceil(len(times) / POINTS))
        if times:
            found.append(KeptCurve(name, tuple(times[::stride]), tuple(values[::stride])))
    return tuple(found)
