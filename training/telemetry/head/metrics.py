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
from training.telemetry.wire import AttemptStart, Body, Report, Run, Steps

log = logging.getLogger(__name__)

PREFIX = "cockpit_train_"

GAUGES = {metric.gauge: metric for metric in METRICS if metric.gauge}
"""By name, after PREFIX."""


class Instrument(Protocol):
    """From `ray.util.metrics`."""

    def __call__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> Any: ...


@dataclass(slots=True)
class _Run:
    name: str = ""
    reported_s: float = -math.inf


class Meter:
    """Tags: `run` (the id), `name` (the run's), and for a rank's numbers `rank`.

    For a world of more than `full_ranks` ranks there are no series by rank, but three of each
    number, with `rank` `min`, `mean` and `max`.
    """

    def __init__(
        self,
        gauge: Instrument,
        counter: Instrument,
        clock: Callable[[], float] = time.monotonic,
        full_ranks: int = FULL_RANKS,
        every_s: float = METRICS_S,
    ) -> None:
        by_rank, by_run = ("run", "name", "rank"), ("run", "name")
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
        self._clock, self._full_ranks, self._every_s = clock, full_ranks, every_s
        self._runs: dict[str, _Run] = {}

    @guarded
    def wrote(self, body: Body) -> None:
        match body:
            case Run():
                self._runs.setdefault(body.run, _Run()).name = body.name
            case AttemptStart():
                self._attempts.inc(1, self._tags(body.run))
                self._world_size.set(len(body.workers), self._tags(body.run))
            case Report():
                tags = self._tags(body.run)
                self._reports.inc(1, tags)
                if body.checkpoint:
                    self._checkpoints.inc(1, tags)
                if body.checkpoint_bytes is not None:
                    self._size.set(body.checkpoint_bytes, tags)
                if body.checkpoint_took_s is not None:
                    self._took.set(body.checkpoint_took_s, tags)
            case _:
                pass

    @guarded
    def tick(self, run: str, steps: Sequence[Steps]) -> None:
        """Only the newest record of each rank, because Ray exports the values some seconds later
        anyway.
        """
        known, now_s = self._runs.setdefault(run, _Run()), self._clock()
        if now_s - known.reported_s < self._every_s:
            return
        known.reported_s = now_s
        tags = self._tags(run)
        for field, gauge in self._gauges.items():
            get = self._get[field]
            values = [(value, item.rank) for item in steps if (value := get(item)) is not None]
            if not values:
                continue
            if len(steps) <= self._full_ranks:
                for value, rank in values:
                    gauge.set(float(value), {**tags, "rank": str(rank)})
                continue
            every = [float(value) for value, _ in values]
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
