"""Estimate when the run will be done, without failures.

left = (target - done) * time of one, low .. high from the quartiles of the pace

`target` is the number of steps or epochs that the job announces: a reported metric, a parameter in
the experiment tracker, or the job's command line, by the names in STEPS and EPOCHS. The pace of
steps is the median over ten blocks of the last half hour; the duration of an epoch is that between
reports (evaluation included), else that of its steps so far. None without a known target or pace.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from msgspec import Struct

from cockpit.insight.metrics.progress import newest_s, stepping_since
from cockpit.insight.metrics.robust_statistics import blocks, percentile, window
from cockpit.insight.metrics.stall import stall
from cockpit.store.run import RunView
from cockpit.store.store import Store

STEPS = ("max_steps", "total_steps", "num_steps", "train_steps", "max_iters", "steps")
EPOCHS = ("max_epochs", "num_epochs", "num_train_epochs", "total_epochs", "epochs")
RECENT_S = 1_800.0
BLOCKS = 10
FEWEST = 8


class Eta(Struct, frozen=True):
    left_s: float
    """From the newest sample on."""
    low_s: float
    high_s: float
    done: float
    target: float
    unit: str
    """`steps` or `epochs`."""
    set_by: str
    """The source of the target, as short text."""
    at_s: float
    """The time of the newest sample."""


def eta(store: Store, run: RunView, now_s: float) -> Eta | None:
    """None when the target or the pace is not known, or the run makes no progress."""
    since, newest = stepping_since(run), newest_s(run)
    if since is None or newest is None or stall(run, now_s) is not None:
        return None
    steps_paces = _step_times(run, max(since, newest - RECENT_S))
    for unit, names in (("steps", STEPS), ("epochs", EPOCHS)):
        target = _target(store, run, names)
        if target is None or target[0] <= 0:
            continue
        done, paces = run.step, steps_paces
        if unit == "epochs":
            epochs = _epochs(run)
            if epochs is None:
                continue
            done_epochs, paces = epochs, _epoch_times(run, since, epochs, steps_paces)
        else:
            done_epochs = float(done or 0)
        if not paces:
            continue
        left = max(0.0, target[0] - done_epochs)
        ordered = sorted(paces)
        low, middle, high = (percentile(ordered, share) for share in (0.25, 0.5, 0.75))
        return Eta(
            left * middle, left * low, left * high, done_epochs, target[0], unit, target[1], newest
        )
    return None


def _step_times(run: RunView, since_s: float) -> list[float]:
    times, values = window(run.curves["step_time_s"], since_s)
    if len(values) < FEWEST:
        return []
    return [value for _, value in blocks(times, values, BLOCKS)]


def _epochs(run: RunView) -> float | None:
    reported = [
        rank.sample.epoch
        for rank in run.ranks.values()
        if rank.sample is not None and rank.sample.epoch is not None
    ]
    epoch = max(reported, default=run.metrics.get("epoch"))
    return epoch if epoch is not None and math.isfinite(epoch) and epoch > 0 else None


def _epoch_times(run: RunView, since_s: float, epoch: float, paces: list[float]) -> list[float]:
    """Seconds per epoch: from one report to the next, else from the steps per epoch so far."""
    times, values = window(run.reported["epoch"], since_s)
    reported = [
        (b - a) / (later - earlier)
        for a, b, earlier, later in zip(times, times[1:], values, values[1:], strict=False)
        if later > earlier
    ]
    if len(reported) >= 3:
        return reported[-2 * BLOCKS :]
    steps = run.step
    # An integer may be the epoch in progress: only a fraction shows the progress within it.
    return [pace * steps / epoch for pace in paces] if steps and epoch % 1 else []


def _target(store: Store, run: RunView, names: tuple[str, ...]) -> tuple[float, str] | None:
    for name in names:
        if name != "steps" and (value := _positive(run.metrics.get(name))) is not None:
            return value, f"the reported {name}"
    for tracked in store.tracked.values():
        if tracked.run_id == run.id:
            for name in names:
                if (value := _positive(tracked.params.get(name))) is not None:
                    return value, f"{name} in the tracker"
    job = store.jobs.get(run.submission_id)
    data = dict(_flags(job.entrypoint)) if job is not None else {}
    for name in names:
        if (value := _positive(data.get(name))) is not None:
            return value, f"--{name} on the command line"
    return None


def _flags(command: str) -> Iterator[tuple[str, str]]:
    """`--max-steps 100`, `--set epochs=3` and `epochs=3`, their names in snake_case."""
    for name, value in re.findall(r"(?:^|\s)(?:--)?([A-Za-z][\w.-]*)[=\s]+(\d[\d_.eE+]*)", command):
        yield name.replace("-", "_").rpartition(".")[2].lower(), value


def _positive(value: object) -> float | None:
    if not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None
