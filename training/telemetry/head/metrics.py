"""The numbers of the stream as gauges and counters of Ray's, for Prometheus and Grafana.

Ray puts `ray_` before each name and serves them on the metrics endpoint of the head node. The names
and tags are stable and documented in docs/telemetry.md.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from training.telemetry.failsafe import guarded
from training.telemetry.settings import FULL_RANKS, METRICS_S
from training.telemetry.wire import AttemptStart, Body, Report, Run, Steps

log = logging.getLogger(__name__)

PREFIX = "cockpit_train_"

GAUGES: Mapping[str, tuple[str, str]] = {
    "step": ("step", "The last global step done."),
    "loss": ("loss", "Of the last step."),
    "samples_per_second": ("samples_per_s", "Samples that the rank trains on."),
    "tokens_per_second": ("tokens_per_s", "Tokens that the rank trains on."),
    "step_time_seconds": ("step_time_s", "Mean wall time of a step."),
    "data_wait_seconds": ("data_wait_s", "Mean of a step: waiting for data."),
    "communication_seconds": ("comm_s", "Mean of a step: in collectives."),
    "forward_seconds": ("forward_s", "Mean of a step: forward pass."),
    "backward_seconds": ("backward_s", "Mean of a step: backward pass."),
    "optimizer_seconds": ("optimizer_s", "Mean of a step: optimiser."),
    "mfu_percent": ("mfu_percent", "Model FLOPs utilisation."),
    "learning_rate": ("learning_rate", "Of the last step."),
    "grad_norm": ("grad_norm", "Of the last step."),
    "cpu_percent": ("cpu_percent", "Of the rank's process; 100 is one core."),
    "memory_bytes": ("memory_bytes", "Resident set of the rank's process."),
    "gpu_utilization_percent": ("gpu_utilization_percent", "As NVML has it."),
    "gpu_memory_bytes": ("gpu_memory_bytes", "Memory in use on the rank's device."),
    "gpu_memory_total_bytes": ("gpu_memory_total_bytes", "Memory of the rank's device."),
    "gpu_power_watts": ("gpu_power_w", "Power that the rank's device draws."),
    "gpu_temperature_celsius": ("gpu_temperature_c", "Of the rank's device."),
    "gpu_clock_mhz": ("gpu_clock_mhz", "Of the streaming multiprocessors."),
    "gpu_ecc_errors": ("gpu_ecc_errors", "Uncorrected errors since the driver was loaded."),
}
"""By name, after PREFIX: the field of a rank's record, and what it is."""


class Instrument(Protocol):
    """Of `ray.util.metrics`."""

    def __call__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> Any: ...


@dataclass(slots=True)
class _Run:
    name: str = ""
    told_s: float = -math.inf


class Meter:
    """Tags: `run` (the id), `name` (the run's), and for a rank's numbers `rank`.

    Of a world of more than `full_ranks` ranks there are no series by rank but three of each
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
            field: gauge(PREFIX + name, text, by_rank) for name, (field, text) in GAUGES.items()
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
        """The newest record of each rank. Ray serves what it was told some seconds ago anyway."""
        known, now_s = self._runs.setdefault(run, _Run()), self._clock()
        if now_s - known.told_s < self._every_s:
            return
        known.told_s = now_s
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
    """Of the Ray that this process is in; None where it has no metrics."""
    try:
        from ray.util.metrics import Counter, Gauge

        return Meter(Gauge, Counter)
    except Exception:
        log.warning("telemetry: no metrics for Prometheus", exc_info=True)
        return None
