"""Synthetic runs: the reports of N ranks, second by second, healthy or with one problem."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from cockpit.insight.detectors.findings import findings
from cockpit.insight.detectors.hysteresis import AlertState
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import LastUpdates
from cockpit.model.alert import Finding
from cockpit.model.event import (
    AlertRaised,
    AttemptEnded,
    AttemptStarted,
    Event,
    MetricsReported,
    RankSampled,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import Checkpoint, Placement, RankSample, RunState
from cockpit.store.run import RunView
from cockpit.store.store import Store

T0 = 1_763_712_000.0
RUN = "run-1"
GIB = 1 << 30

Change = Callable[[RankSample, float], RankSample | None]
"""Changes the report of a rank, given the second of the run; None: no report."""


class Tick(Protocol):
    def __call__(self, *, saving: bool) -> None: ...


def as_it_is(sample: RankSample, at_s: float) -> RankSample:
    return sample


@dataclass(slots=True)
class Training:
    """A data-parallel run with a simulated clock: seconds since T0, steps of about 0.1 s.

    `change` adds a problem. `pauses` are (begin, end) without a step, as in an evaluation; `saves`
    every that many seconds blocks all ranks for `save_s` and yields a checkpoint.
    """

    ranks: int = 2
    gpus: bool = False
    seed: int = 1
    noise: float = 0.08
    change: Change = as_it_is
    pauses: tuple[tuple[float, float], ...] = ()
    saves: float = 300.0
    save_s: float = 2.0
    step_s: float = 0.1
    node_of: Callable[[int], str] = lambda rank: f"10.0.0.{rank // 8}"
    store: Store = field(default_factory=Store)
    step: float = 0.0
    now_s: float = 0.0
    attempt: int = 0
    skew_s: dict[int, float] = field(default_factory=dict)
    """By rank: how far its node's clock is off."""
    tick: Tick | None = None
    """Changes the reports of a second."""
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @property
    def run(self) -> RunView:
        return self.store.runs[RUN]

    @property
    def clock(self) -> float:
        return T0 + self.now_s

    def tell(self, event: Event) -> None:
        self.store.apply(event)

    def state(self, state: RunState) -> None:
        self.tell(
            RunSeen(
                at_s=self.clock, source="telemetry", run_id=RUN, name="r", state=state,
                world_size=self.ranks,
            )
        )  # fmt: skip

    def start(self) -> None:
        """Up to the ranks' processes; the first step is 8 s later."""
        self.state(RunState.INITIALIZING if self.attempt == 0 else RunState.RESCHEDULING)
        self.now_s += 4
        self.attempt += 1
        placed = tuple(
            Placement(r, f"n{r // 8}", self.node_of(r), 100 + r, (r % 8,) if self.gpus else ())
            for r in range(self.ranks)
        )
        self.tell(
            AttemptStarted(
                at_s=self.clock, source="telemetry", run_id=RUN, attempt=self.attempt,
                placements=placed,
            )
        )  # fmt: skip
        self.state(RunState.RUNNING)
        self.now_s += 8

    def end(self, reason: str, back_by: int = 0) -> None:
        """The attempt ends; the next resumes this number of steps back."""
        self.tell(
            AttemptEnded(
                at_s=self.clock, source="telemetry", run_id=RUN, attempt=self.attempt,
                reason=reason,
            )
        )  # fmt: skip
        self.state(RunState.RESTARTING)
        self.step -= back_by

    def healthy(self) -> None:
        self.tell(SourceHealth(at_s=self.clock, source="telemetry", ok=True))

    def go(self, seconds: float) -> Iterator[float]:
        """Train for so long; yields the second, each second."""
        until = self.now_s + seconds
        began = self.now_s
        while self.now_s < until:
            self.now_s += 1.0
            self.healthy()
            into = self.now_s - began
            if not any(begin <= self.now_s < end for begin, end in self.pauses):
                (self.tick or self._tick)(saving=into % self.saves < 1.0 and into > 1)
            yield self.now_s

    def _tick(self, *, saving: bool) -> None:
        blocked = self.save_s if saving else 0.0
        first = self.step
        self.step += max(1.0, (1.0 - min(0.9, blocked)) / self.step_s)
        level = self._random.gauss(1.0, self.noise / 2)
        reported = (
            self._sample(rank, int(first) + 1, level, blocked) for rank in range(self.ranks)
        )
        changed = (self.change(sample, self.now_s) for sample in reported)
        samples = tuple(sample for sample in changed if sample is not None)
        if samples:
            self.tell(RankSampled(at_s=self.clock, source="telemetry", run_id=RUN, samples=samples))
        if saving:
            saved = Checkpoint(int(self.step), f"/c/{int(self.step)}")
            self.tell(
                MetricsReported(
                    at_s=self.clock, source="telemetry", run_id=RUN, attempt=self.attempt,
                    metrics={"loss": loss_at(self.step)}, checkpoint=saved,
                )
            )  # fmt: skip

    def _sample(self, rank: int, first: int, level: float, blocked: float) -> RankSample:
        """All ranks' steps take equally long; who works longer waits less."""
        gauss = self._random.gauss
        step_s = self.step_s * max(0.3, level)
        own = step_s * 0.7 * max(0.3, gauss(1.0, self.noise / 2))
        sample = RankSample(
            rank=rank,
            attempt=self.attempt,
            at_s=self.clock + self.skew_s.get(rank, 0.0),
            step=int(self.step),
            first_step=min(first, int(self.step)),
            steps_total=int(self.step),
            loss=loss_at(self.step) * gauss(1.0, self.noise),
            samples_per_s=32 / step_s,
            step_time_s=step_s + blocked / 10,
            data_wait_s=0.05 * own,
            comm_s=max(0.0, step_s - own),
            checkpoint_s=blocked,
            memory_bytes=int(2 * GIB * gauss(1.0, 0.002)),
        )
        if self.gpus:
            sample = replace(
                sample,
                gpu_utilization_percent=min(100.0, max(60.0, gauss(93, 4))),
                gpu_memory_bytes=int(100 * GIB * gauss(1.0, 0.002)),
                gpu_memory_total_bytes=139 * GIB,
                gpu_throttle="sw power cap",
                gpu_ecc_errors=0,
            )
        return sample


def loss_at(step: float) -> float:
    return 0.5 + 2.0 * math.exp(-step / 8_000) + 1.0 / (1 + step / 500)


@dataclass(slots=True)
class Watcher:
    """Looks once a second, as an app does, and notes what was found and raised first, and when."""

    training: Training
    limits: Thresholds = field(default_factory=Thresholds)
    heard: LastUpdates = field(default_factory=LastUpdates)
    alarm: AlertState = field(default_factory=AlertState)
    found: dict[str, tuple[float, Finding]] = field(default_factory=dict)
    """By kind: the second of the run, and the first message."""
    raised: dict[str, float] = field(default_factory=dict)
    cleared: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        training = self.training
        run, now_s = training.run, training.clock
        self.heard.note(run, now_s)
        found = findings(training.store, run, now_s, limits=self.limits, last_updates=self.heard)
        for finding in found:
            self.found.setdefault(finding.kind, (training.now_s, finding))
        for event in self.alarm.update(training.store, run, found, now_s, self.limits):
            training.tell(event)
            if isinstance(event, AlertRaised):
                self.raised.setdefault(event.alert.finding.kind, training.now_s)
            else:
                self.cleared.setdefault(event.alert_id.split("/")[0], training.now_s)

    def watch(self, seconds: float) -> None:
        for _ in self.training.go(seconds):
            self.look()

    def idle(self, seconds: float, *, telemetry: bool = True) -> None:
        """No reports for that long, except (with `telemetry`) that the source is OK."""
        for _ in range(int(seconds)):
            self.training.now_s += 1
            if telemetry:
                self.training.healthy()
            self.look()
