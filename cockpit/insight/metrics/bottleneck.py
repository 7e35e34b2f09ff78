"""Split the time of a step into input, communication, checkpoints and compute.

Formula, over the records of the last `window_s` seconds (checkpoints: half an hour), `d` being the
time that a record covers, without a pause before it:

    checkpoint    = sum(checkpoint) / max(600 s, the half hour or what there is of it)
    input         = (1 - checkpoint) * sum(d * data_wait / step_time) / sum(d)
    communication = (1 - checkpoint) * sum(d * exposed_comm / step_time) / sum(d)
    compute       = 1 - input - communication - checkpoint

Communication that overlaps with computation costs no time: if forward, backward and optimiser are
timed, `exposed_comm` is at most the step time without them and the input. The exposed part is what
matters, as in the PyTorch profiler's "communication/computation overlap" (Holistic Trace Analysis,
Meta, 2023). Each number is the mean over ranks.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import islice, pairwise

from msgspec import Struct

from cockpit.format import duration, in_seconds
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import newest_s, stepping_since
from cockpit.insight.metrics.robust_statistics import finite, median, window
from cockpit.model.alert import Finding, Severity
from cockpit.store.run import RunView
from cockpit.store.series import Series

FEWEST_RECORDS = 10
WINDOW_S = 120.0
CHECKPOINT_WINDOW_S = 1_800.0
CHECKPOINT_LEAST_S = 600.0
"""One checkpoint a minute after the start is not yet a share of the time."""
MOSTLY_PERCENT = 50.0
_TRY = {
    "input": "More data-loader workers, prefetching, or packed files on local storage",
    "communication": (
        "Larger batches per rank, gradient accumulation or compression, or fewer nodes"
    ),
    "checkpoint": "Asynchronous checkpoints, a faster disk, or less frequent saves",
    "compute": "Mixed precision, compilation, or more ranks",
}


class Shares(Struct, frozen=True):
    """Parts of the step time, in percent; together 100. None if a part is not reported."""

    input_percent: float | None
    comm_percent: float | None
    checkpoint_percent: float | None
    compute_percent: float
    step_time_s: float
    """The median over the window."""
    window_s: float
    """How long the records are that this is from."""

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """By name, in the order of a step; what is unknown is left out."""
        named = (
            ("input", self.input_percent),
            ("compute", self.compute_percent),
            ("communication", self.comm_percent),
            ("checkpoint", self.checkpoint_percent),
        )
        return tuple((name, percent) for name, percent in named if percent is not None)

    @property
    def largest(self) -> str:
        return max(self.parts, key=lambda part: part[1])[0]

    @property
    def todo(self) -> str:
        return _TRY[self.largest]


def shares(run: RunView, window_s: float = WINDOW_S) -> Shares | None:
    """None before ten timed records in this attempt, or when no part is reported."""
    since, newest = stepping_since(run), newest_s(run)
    if since is None or newest is None:
        return None
    # The record before the first one of the window gives the start of that one.
    times, steps = _points(run.curves["step_time_s"], max(since, newest - window_s))
    if len(times) < FEWEST_RECORDS:
        return None
    parts = {
        name: part
        for name in ("data_wait_s", "comm_s", *_WORK)
        if name in run.curves and (part := _part(run.curves[name], times)) is not None
    }
    save = _checkpoint_share(run, since, newest)
    if save is None and not parts.keys() & {"data_wait_s", "comm_s"}:
        return None
    none = [0.0] * len(steps)
    wait_s, comm_s = parts.get("data_wait_s", none), parts.get("comm_s", none)
    works = (parts[name] for name in _WORK if name in parts)
    work_s = [sum(each) for each in zip(none, *works, strict=True)]
    waits = comms = total = 0.0
    rows = zip(steps, wait_s, comm_s, work_s, strict=True)
    covered = zip(islice(rows, 1, None), _lengths(times), strict=True)
    for (step_s, wait, comm, work), length in covered:
        if not (step_s > 0 and math.isfinite(step_s)):
            continue
        total += length
        if work > 0:
            comm = min(comm, max(0.0, step_s - wait - work))
        waits += length * min(1.0, wait / step_s)
        comms += length * min(1.0, comm / step_s)
    if total <= 0:
        return None
    rest = 100.0 * (1.0 - (save or 0.0))
    reported = [
        rest * waits / total if "data_wait_s" in parts else None,
        rest * comms / total if "comm_s" in parts else None,
        100.0 * save if save is not None else None,
    ]
    over = max(1.0, sum(part or 0.0 for part in reported) / 100.0)
    inputs, communication, checkpoint = (None if part is None else part / over for part in reported)
    compute = 100.0 - sum(part or 0.0 for part in (inputs, communication, checkpoint))
    return Shares(
        inputs, communication, checkpoint, max(0.0, compute), median(finite(steps)), total
    )


_WORK = ("forward_s", "backward_s", "optimizer_s")


def _lengths(times: list[float]) -> list[float]:
    """The time that each record but the first covers; a pause before it is not part of it."""
    lengths = [b - a for a, b in pairwise(times)]
    most = 2.0 * median(lengths)
    return [min(length, most) for length in lengths]


def _checkpoint_share(run: RunView, since_s: float, newest: float) -> float | None:
    """Over a longer window, since checkpoints are rare; None when they are not reported."""
    if "checkpoint_s" not in run.curves:
        return None
    begin = max(since_s, newest - CHECKPOINT_WINDOW_S)
    _, blocked = window(run.curves["checkpoint_s"], begin)
    stalled = sum(value for value in blocked if value > 0)
    return min(1.0, stalled / max(newest - begin, CHECKPOINT_LEAST_S))


def _points(series: Series, since_s: float) -> tuple[list[float], list[float]]:
    first = bisect_left(series.times, since_s)
    return list(series.times[first:]), list(series.values[first:])


def _part(series: Series, times: list[float]) -> list[float] | None:
    """Its positive values at these times, 0 without one; None without a point since the first."""
    its_times, values = _points(series, times[0])
    if not its_times:
        return None
    usable = [value if 0 < value < math.inf else 0.0 for value in values]
    if its_times == times:
        return usable
    by_time = dict(zip(its_times, usable, strict=True))
    return [by_time.get(at_s, 0.0) for at_s in times]


def find(run: RunView, limits: Thresholds) -> list[Finding]:
    """`input-bound`, `comm-bound`, `checkpoint-bound`: each a share above its threshold."""
    found = shares(run, limits.window_s)
    since, newest = stepping_since(run), newest_s(run)
    if found is None or since is None or newest is None or newest - since < limits.warmup_s:
        return []
    checks = (
        ("input-bound", "input", found.input_percent, limits.input_percent, "waiting for data"),
        (
            "comm-bound",
            "communication",
            found.comm_percent,
            limits.comm_percent,
            "in communication",
        ),
        (
            "checkpoint-bound",
            "checkpoint",
            found.checkpoint_percent,
            limits.checkpoint_percent,
            "blocked on checkpoints",
        ),
    )
    return [
        Finding(
            kind,
            f"run {run.id}",
            Severity.WARNING if share >= MOSTLY_PERCENT else Severity.INFO,
            f"{share:.0f} % of the time is spent {doing}",
            f"The last {in_seconds(found.window_s, 0)}, steps of {duration(found.step_time_s)}, "
            f"mean over ranks;"
            f" threshold {limit:g} %",
            _TRY[name],
            run.id,
        )
        for kind, name, share, limit, doing in checks
        if share is not None and share >= limit
    ]
