"""One metric over all ranks: quantiles by nearest rank (NIST/SEMATECH e-Handbook, 7.2.6.2)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import fields
from operator import attrgetter, itemgetter

from training.telemetry.wire import Spread, Steps

FIELDS = tuple(
    item.name
    for item in fields(Steps)
    if item.name not in ("rank", "attempt", "t", "first_step", "gpu_xid")
    and str(item.type).removesuffix(" | None") in ("int", "float")
)
"""The numbers of a rank's record that have a spread; a Xid is an identifier, not an amount."""

_GET = {name: attrgetter(name) for name in FIELDS}
_OUTLIERS_OF = ("loss", "step_time_s")


def spreads(steps: Collection[Steps]) -> tuple[Spread, ...]:
    """One for each number that a rank reported; none if all reported values are not finite."""
    found = (_spread(name, steps) for name in FIELDS)
    return tuple(item for item in found if item is not None)


def _spread(name: str, steps: Collection[Steps]) -> Spread | None:
    get = _GET[name]
    known = [(float(value), item.rank) for item in steps if (value := get(item)) is not None]
    finite = sorted((pair for pair in known if math.isfinite(pair[0])), key=itemgetter(0))
    if not finite:
        return None
    last = len(finite) - 1
    whole = len(finite) == len(known)
    return Spread(
        name=name,
        count=len(known),
        mean=math.fsum(value for value, _ in finite) / len(finite) if whole else math.nan,
        low=finite[0][0],
        p10=finite[round(last * 0.1)][0],
        p50=finite[round(last * 0.5)][0],
        p90=finite[round(last * 0.9)][0],
        high=finite[-1][0],
        low_rank=finite[0][1],
        high_rank=finite[-1][1],
    )


def outliers(found: Sequence[Spread]) -> set[int]:
    """The ranks with the minimum and the maximum of loss and step time."""
    return {
        rank
        for spread in found
        if spread.name in _OUTLIERS_OF
        for rank in (spread.low_rank, spread.high_rank)
    }
