"""The numbers of the stream as Ray gauges and counters, for Prometheus and Grafana.

Ray adds the prefix `ray_` to each name and serves them on the metrics endpoint of the head node.
The names and tags are stable and documented in docs/telemetry.md.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from training.telemetry.failsafe import guarded
from training.telemetry.metric_table import METRICS
from training.telemetry.settings import FULL_RANKS, METRICS_S
from training.telemetry.wire import AttemptEnd, AttemptStart, Body, Report, Run, Steps

log = logging.getLogger(__name__)

PREFIX = "cockpit_train_"

GAUGES = {metric.gauge: metric for metric in METRICS if metric.gauge}
"""By name, after PREFIX."""


STARTING = frozenset({"SCHEDULING", "RESCHEDULING", "RESTARTING", "RESIZING"})
"""The states of a run whose worker group is starting."""
ENDED = frozenset({"ERRORED", "FINISHED", "ABORTED"})
LACKING = "waits for resources"
"""The beginning of the message of a run that needs more than the complete cluster has."""


class Instrument(Protocol):
    """From `ray.util.metrics`."""

    def __call__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> Any: ...


class _Gauge:
    """A gauge that keeps its values, and sets them again.

    Ray exports a value only if it was set since the last export, and drops it after two of them
    (ray/_private/telemetry/open_telemetry_metric_recorder.py). Without this, the time of the last
    step would be missing as soon as a run hangs.
    """

    def __init__(self, gauge: Any, clock: Callable[[], float]) -> None:
        self._gauge, self._clock = gauge, clock
        self._kept: dict[tuple[str, ...], tuple[dict[str, str], float, float]] = {}
        """By the tags' values: tags, value, and when it was set."""

    def set(self, value: float, tags: dict[str, str]) -> None:
        self._kept[tuple(tags.values())] = (tags, value, self._clock())
        self._gauge.set(value, tags)

    def drop(self, tags: dict[str, str]) -> None:
        """The value is not known any more."""
        self._kept.pop(tuple(tags.values()), None)

    def refresh(self, before_s: float) -> None:
        """Set the values again that were last set before that time."""
        for tags, value, at_s in list(self._kept.values()):
            if at_s < before_s:
                self.set(value, tags)

    def forget(self, run: str) -> None:
        self._kept = {key: kept for key, kept in self._kept.items() if kept[0]["run"] != run}


@dataclass(slots=True)
class _Run:
    name: str = ""
    exported_s: float = -math.inf
    """When the gauges of its ranks were last set, by the monotonic clock."""
    is_large: bool = False
    """Whether they were then set for all ranks together."""
    starting_s: float = 0.0
    """When it began to start a worker group, in Unix seconds; 0 while it does not."""
    was_up: bool = False
    """Whether an attempt has begun."""
    is_over: bool = False
    """A rank's last records, and a report that waited for a size, may arrive after the end."""
    reported_s: float = 0.0
    saved_s: float = 0.0


class Meter:
    """Tags: `run` (the id), `name` (the run's), and for a rank's numbers `rank`.

    For a world of more than `full_ranks` ranks there are no series by rank, but three of each
    number, with `rank` `min`, `mean` and `max`.
    """

    def __init__(
        self,
        instrument: Instrument,
        counter: Instrument,
        clock: Callable[[], float] = time.monotonic,
        full_ranks: int = FULL_RANKS,
        every_s: float = METRICS_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        by_rank, by_run = ("run", "name", "rank"), ("run", "name")
        of_runs: list[_Gauge] = []
        of_ranks: list[_Gauge] = []

        def gauge(name: str, description: str, tag_keys: tuple[str, ...]) -> _Gauge:
            made = _Gauge(instrument(name, description, tag_keys), clock)
            (of_ranks if tag_keys == by_rank else of_runs).append(made)
            return made

        self._of_runs, self._of_ranks, self._refreshed_s = of_runs, of_ranks, -math.inf
        self._gauges = {
            metric.name: gauge(PREFIX + name, metric.help, by_rank)
            for name, metric in GAUGES.items()
        }
        self._get = {field: attrgetter(field) for field in self._gauges}
        self._world_size = gauge(PREFIX + "world_size", "Ranks of the newest attempt.", by_run)
        self._attempts = counter(PREFIX + "attempts", "Worker groups that came up.", by_run)
        self._reports = counter(PREFIX + "reports", "Reports that were accepted.", by_run)
        self._checkpoints = counter(PREFIX + "checkpoints", "Checkpoints accepted.", by_run)
        self._size = gauge(PREFIX + "checkpoint_bytes", "Of the newest checkpoint.", by_run)
        self._took = gauge(
            PREFIX + "checkpoint_seconds", "From the report to the acceptance.", by_run
        )
        self._stepped = gauge(
            PREFIX + "step_timestamp_seconds", "When the rank made its newest step.", by_rank
        )
        self._running = gauge(
            PREFIX + "running", "1 while the ranks of an attempt are up, else 0.", by_run
        )
        self._started = gauge(
            PREFIX + "attempt_timestamp_seconds", "When the newest attempt came up.", by_run
        )
        self._starting = gauge(
            PREFIX + "starting_timestamp_seconds",
            "Since when no attempt is up, without the wait for resources before the first; else 0.",
            by_run,
        )
        self._reported = gauge(
            PREFIX + "report_timestamp_seconds", "When the newest report was accepted.", by_run
        )
        self._report_every = gauge(
            PREFIX + "report_interval_seconds", "Between the two newest reports.", by_run
        )
        self._saved = gauge(
            PREFIX + "checkpoint_timestamp_seconds", "When the newest checkpoint came.", by_run
        )
        self._save_every = gauge(
            PREFIX + "checkpoint_interval_seconds", "Between the two newest checkpoints.", by_run
        )
        self._clock, self._full_ranks, self._every_s = clock, full_ranks, every_s
        self._now = now
        self._runs: dict[str, _Run] = {}

    @guarded
    def wrote(self, body: Body) -> None:
        self._take(body, self._now())

    @guarded
    def learn(self, t: float, body: Body) -> None:
        """What the process before this one has written, and counted."""
        self._take(body, t, is_new=False)

    def _take(self, body: Body, now_s: float, *, is_new: bool = True) -> None:
        match body:
            case Run():
                self._state(body, now_s)
            case AttemptStart():
                self._forget_ranks(body.run)
                tags = self._tags(body.run)
                self._runs[body.run].was_up = True
                if is_new:
                    self._attempts.inc(1, tags)
                self._world_size.set(len(body.workers), tags)
                self._started.set(now_s, tags)
                self._running.set(1, tags)
            case AttemptEnd():
                self._forget_ranks(body.run)
                self._running.set(0, self._tags(body.run))
            case Report():
                tags, known = self._tags(body.run), self._runs[body.run]
                if is_new:
                    self._reports.inc(1, tags)
                self._reported.set(now_s, tags)
                if known.reported_s:
                    self._report_every.set(now_s - known.reported_s, tags)
                known.reported_s = now_s
                if body.checkpoint:
                    if is_new:
                        self._checkpoints.inc(1, tags)
                    self._saved.set(now_s, tags)
                    if known.saved_s:
                        self._save_every.set(now_s - known.saved_s, tags)
                    known.saved_s = now_s
                if body.checkpoint_bytes is not None:
                    self._size.set(body.checkpoint_bytes, tags)
                if body.checkpoint_took_s is not None:
                    self._took.set(body.checkpoint_took_s, tags)
            case _:
                return
        if self._runs[body.run].is_over:
            for each in (*self._of_runs, *self._of_ranks):
                each.forget(body.run)

    def _state(self, body: Run, now_s: float) -> None:
        known = self._runs.setdefault(body.run, _Run())
        known.name = body.name
        tags = self._tags(body.run)
        waits = body.message.startswith(LACKING) and not known.was_up
        if body.state not in STARTING or waits:
            known.starting_s = 0.0
        elif not known.starting_s:
            known.starting_s = now_s
        self._starting.set(known.starting_s, tags)
        known.is_over = body.state in ENDED
        if known.is_over:
            self._running.set(0, tags)

    def _forget_ranks(self, run: str) -> None:
        """The next attempt may have fewer ranks, or others."""
        for each in self._of_ranks:
            each.forget(run)

    @guarded
    def refresh(self) -> None:
        """Set the values again that no record has changed lately, of the runs that have not ended.

        To be called often.
        """
        now_s = self._clock()
        if now_s - self._refreshed_s < self._every_s:
            return
        self._refreshed_s = now_s
        for each in (*self._of_runs, *self._of_ranks):
            each.refresh(now_s - self._every_s / 2)

    @guarded
    def tick(self, run: str, steps: Sequence[Steps]) -> None:
        """Only the newest record of each rank, because Ray exports the values some seconds later
        anyway.
        """
        known, now_s = self._runs.setdefault(run, _Run()), self._clock()
        if known.is_over or now_s - known.exported_s < self._every_s:
            return
        known.exported_s = now_s
        is_large = len(steps) > self._full_ranks
        if is_large and not known.is_large:
            self._forget_ranks(run)  # those that came first, or their values would stay
        known.is_large = is_large
        tags = self._tags(run)
        if not is_large:
            for item in steps:
                self._stepped.set(item.t, {**tags, "rank": str(item.rank)})
        else:
            self._stepped.set(max(item.t for item in steps), {**tags, "rank": "max"})
        for field, gauge in self._gauges.items():
            get = self._get[field]
            values = [(get(item), item.rank) for item in steps]
            if not is_large:
                for value, rank in values:
                    of_rank = {**tags, "rank": str(rank)}
                    if value is None:
                        gauge.drop(of_rank)
                    else:
                        gauge.set(float(value), of_rank)
                continue
            every = [float(value) for value, _ in values if value is not None]
            if not every:
                continue
            for name, value in (
                ("min", min(every)),
                ("mean", sum(every) / len(every)),
                ("max", max(every)),
            ):
                gauge.set(value, {**tags, "rank": name})

    def _tags(self, run: str) -> dict[str, str]:
        return {"run": run, "name": self._runs.setdefault(run, _Run()).name}


def meter() -> Meter | None:
    """The metrics of the Ray that this process runs in; None if it has none."""
    try:
        from ray.util.metrics import Counter, Gauge

        return Meter(Gauge, Counter)
    except Exception:
        log.warning("telemetry: no metrics for Prometheus", exc_info=True)
        return None
