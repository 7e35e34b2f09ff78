"""Whether the loss continued at its previous level.

    after       the median of the first 20 records of the new attempt; where at least 3 of them
                are of steps that the old one had done, of those
    before      the median of the old attempt's records of the same steps; else of its last 20
    spread      1.4826 MAD of those 20
    continuous  both are finite, and after <= before + max(4 spread, 10 % of |before|, 5 % of what
                the loss had fallen: |first - before|, first: the highest of the run's first 5, or 1
                for a run that resumed another one, which had those; 1e-6: float32's rounding of a
                cross-entropy, which is 0 at one step and 4e-9 at the next)

Repeated steps are compared with their first execution: early in a run the loss falls so fast that
going back by some steps is a rise. Near its end it is small and its noise is skewed, so the
threshold is relative to its total decrease (as for a spike, `loss.py`); a quick run has fallen far
within its first five records, one a second. A loss that is lower than before is no break. Records
are means over ranks, so a step is that of the newest rank at that time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from cockpit.insight.metrics.robust_statistics import median, spread
from cockpit.model.drill import Continuity
from cockpit.store.run import RunView
from cockpit.store.series import Series

RECORDS = 20
LEAST = 3
"""Records on either side."""
FIRST = 5
SIGMAS = 4.0
RISE_PERCENT = 10.0
FALLEN_PERCENT = 5.0
ROUNDING = 1e-6
RESUMED = 1.0
"""Where the loss of a run began that was resumed as another run, such as after the loss of a head:
it is not known, and near zero the noise of the loss is a multiple of it.
"""


def continuity(
    run: RunView, stopped_s: float, first_s: float, until_s: float, lost: Sequence[float] = ()
) -> Continuity | None:
    """Compare the records up to `stopped_s` with those from `first_s` to `until_s`.

    `lost`: the newest losses before the fault as recorded then, for a run whose curve does not
    include it. None with too few records on either side.
    """
    old = _records(run, -math.inf, stopped_s)[-200:]
    new = [record for record in _records(run, first_s, until_s) if record[0] > stopped_s][:RECORDS]
    if len(new) < LEAST:
        return None
    newest = [loss for _, _, loss in old[-RECORDS:]] or list(lost[-RECORDS:])
    lows = [step for _, step, _ in new if step is not None]
    alike = [
        loss for _, step, loss in old if lows and step is not None and lows[0] <= step <= lows[-1]
    ]
    again = [
        loss for _, step, loss in new if step is not None and old and step <= (old[-1][1] or 0)
    ]
    same = min(len(alike), len(again)) >= LEAST
    before_all = alike if same else newest
    if len(before_all) < LEAST:
        return None
    finite = [loss for loss in before_all if math.isfinite(loss)]
    before = median(finite) if finite else math.nan
    after_all = again if same else [loss for _, _, loss in new]
    after = median(after_all) if all(map(math.isfinite, after_all)) else math.nan
    settled = [loss for loss in newest if math.isfinite(loss)]
    varied = spread(settled) if settled else 0.0
    limit = max(
        SIGMAS * varied,
        abs(before) * RISE_PERCENT / 100.0,
        abs(_first(run) - before) * FALLEN_PERCENT / 100.0,
        ROUNDING,
    )
    return Continuity(before, after, varied, bool(after <= before + limit))


def losses_known(run: RunView) -> int:
    """LEAST of them before a fault are what `continuity` needs."""
    return len(_series(run))


def _first(run: RunView) -> float:
    # An attempt that failed before its first step has none.
    begun = [run.attempts[number].first_step for number in sorted(run.attempts)]
    if next((step for step in begun if step is not None), 0) > 1:
        return RESUMED
    finite = [loss for loss in _series(run).values[:FIRST] if math.isfinite(loss)]
    return max(finite, default=0.0)


def _series(run: RunView) -> Series:
    return run.curves["loss"] if "loss" in run.curves else run.reported["loss"]


def _records(
    run: RunView, since_s: float, until_s: float
) -> list[tuple[float, float | None, float]]:
    """Time, step and loss of each record; for a run without steps, of its reports."""
    series = _series(run)
    first, last = bisect_left(series.times, since_s), bisect_right(series.times, until_s)
    steps = run.progress
    found: list[tuple[float, float | None, float]] = []
    for at in range(max(first, last - 200) if since_s == -math.inf else first, last):
        at_s = series.times[at]
        there = bisect_right(steps.times, at_s) - 1
        found.append((at_s, steps.values[there] if there >= 0 else None, series.values[at]))
        if since_s != -math.inf and len(found) > RECORDS:
            break
    return found
