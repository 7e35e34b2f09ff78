"""A drill as it is kept for later: its record, and the run's curves around it."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.model.drill import DrillRecord


@dataclass(frozen=True, slots=True)
class KeptCurve:
    name: str
    """A field of `RankSample`: `loss`, `samples_per_s`."""
    times: tuple[float, ...] = ()
    """Unix seconds, ascending."""
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptDrill:
    record: DrillRecord
    run: str = ""
    """The name of the run that was hit; empty where there was none."""
    curves: tuple[KeptCurve, ...] = ()
