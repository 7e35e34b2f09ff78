"""What is known of one run: its attempts, its ranks and their curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from cockpit.model.run import Checkpoint, Placement, RankSample, RunState
from cockpit.store.series import Series

RANK_POINTS = 900
"""Points kept of each curve of each rank: 15 minutes at 1 Hz."""
RUN_POINTS = 14_400
"""Points kept of each curve of the run: 4 hours at 1 Hz."""
STATES_KEPT = 500


@dataclass(slots=True)
class AttemptView:
    """One worker-group start, as far as it is known."""

    number: int
    started_s: float | None = None
    ended_s: float | None = None
    reason: str = ""
    placements: tuple[Placement, ...] = ()
    first_step: int | None = None
    """The first step of any rank: where the attempt resumed."""
    first_step_s: float | None = None
    """When the first sample with a step came in."""
    last_step: int | None = None


@dataclass(slots=True)
class RankView:
    """One rank: its newest sample, where it runs, and its curves over all attempts."""

    rank: int
    placement: Placement | None = None
    sample: RankSample | None = None
    loss_first: float | None = None
    """The first loss of the run that this rank told."""
    steps: int = 0
    """Steps done by this rank over all attempts, redone ones included."""
    loss: Series = field(default_factory=lambda: Series(RANK_POINTS))
    samples_per_s: Series = field(default_factory=lambda: Series(RANK_POINTS))
    step_time_s: Series = field(default_factory=lambda: Series(RANK_POINTS))
    cpu_percent: Series = field(default_factory=lambda: Series(RANK_POINTS))
    memory_bytes: Series = field(default_factory=lambda: Series(RANK_POINTS))
    gpu_utilization_percent: Series = field(default_factory=lambda: Series(RANK_POINTS))


@dataclass(slots=True)
class RunView:
    """One run. Its curves are means over the ranks; throughput and memory are their sums."""

    id: str
    name: str = ""
    state: RunState = RunState.UNKNOWN
    job_id: str = ""
    submission_id: str = ""
    world_size: int | None = None
    message: str = ""
    started_s: float = 0.0
    ended_s: float | None = None
    states: list[tuple[float, RunState]] = field(default_factory=list)
    attempts: dict[int, AttemptView] = field(default_factory=dict)
    ranks: dict[int, RankView] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    """The newest reported value of each metric."""
    reported_s: float | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_s: float | None = None
    checkpoints: list[float] = field(default_factory=list)
    """When each checkpoint was accepted."""
    samples_seen: int = 0
    """Rank samples received: one a rank and tick."""
    loss: Series = field(default_factory=lambda: Series(RUN_POINTS))
    samples_per_s: Series = field(default_factory=lambda: Series(RUN_POINTS))
    step_time_s: Series = field(default_factory=lambda: Series(RUN_POINTS))
    cpu_percent: Series = field(default_factory=lambda: Series(RUN_POINTS))
    memory_bytes: Series = field(default_factory=lambda: Series(RUN_POINTS))
    gpu_utilization_percent: Series = field(default_factory=lambda: Series(RUN_POINTS))
    reported: dict[str, Series] = field(default_factory=dict)

    @property
    def attempt(self) -> AttemptView | None:
        """The newest attempt."""
        return self.attempts[max(self.attempts)] if self.attempts else None

    @property
    def step(self) -> int | None:
        """The newest step of the newest attempt; before its first step, that of the one before."""
        for number in sorted(self.attempts, reverse=True):
            if (step := self.attempts[number].last_step) is not None:
                return step
        return None

    def enter(self, at_s: float, state: RunState) -> None:
        if self.states and (self.states[-1][1] is state or at_s < self.states[-1][0]):
            return
        self.state = state
        self.states.append((at_s, state))
        del self.states[:-STATES_KEPT]
        self.started_s = self.started_s or at_s
        self.ended_s = at_s if state.is_over else None

    def attempt_view(self, number: int) -> AttemptView:
        return self.attempts.setdefault(number, AttemptView(number))

    def take(self, samples: tuple[RankSample, ...]) -> None:
        """Fold in one tick. A sample that is not newer than the rank's last is dropped."""
        fresh = [sample for sample in samples if self._take_one(sample)]
        if not fresh:
            return
        at_s = max(sample.at_s for sample in fresh)
        newest = max(sample.attempt for sample in fresh)
        live = [
            rank.sample
            for rank in self.ranks.values()
            if rank.sample is not None and rank.sample.attempt == newest
        ]
        _append_mean(self.loss, at_s, [sample.loss for sample in live])
        _append_mean(self.step_time_s, at_s, [sample.step_time_s for sample in live])
        _append_mean(self.cpu_percent, at_s, [sample.cpu_percent for sample in live])
        gpus = [sample.gpu_utilization_percent for sample in live]
        _append_mean(self.gpu_utilization_percent, at_s, gpus)
        _append_sum(self.samples_per_s, at_s, [sample.samples_per_s for sample in live])
        _append_sum(self.memory_bytes, at_s, [sample.memory_bytes for sample in live])

    def _take_one(self, sample: RankSample) -> bool:
        rank = self.ranks.setdefault(sample.rank, RankView(sample.rank))
        before = rank.sample
        if before is not None and (sample.attempt, sample.at_s) <= (before.attempt, before.at_s):
            return False
        self.samples_seen += 1
        rank.steps += sample.step - sample.first_step + 1
        rank.sample = sample
        if rank.loss_first is None:
            rank.loss_first = sample.loss
        for series, value in (
            (rank.loss, sample.loss),
            (rank.samples_per_s, sample.samples_per_s),
            (rank.step_time_s, sample.step_time_s),
            (rank.cpu_percent, sample.cpu_percent),
            (rank.memory_bytes, sample.memory_bytes),
            (rank.gpu_utilization_percent, sample.gpu_utilization_percent),
        ):
            if value is not None:
                series.append(sample.at_s, value)
        attempt = self.attempt_view(sample.attempt)
        if attempt.first_step is None or sample.first_step < attempt.first_step:
            attempt.first_step = sample.first_step
        if attempt.first_step_s is None or sample.at_s < attempt.first_step_s:
            attempt.first_step_s = sample.at_s
        attempt.last_step = max(attempt.last_step or 0, sample.step)
        return True


def _append_sum(series: Series, at_s: float, values: Sequence[float | None]) -> None:
    known = [value for value in values if value is not None]
    if known:
        series.append(at_s, sum(known))


def _append_mean(series: Series, at_s: float, values: list[float | None]) -> None:
    """The mean of those that are known; NaN as soon as one rank has NaN, so that it shows."""
    known = [value for value in values if value is not None]
    if known:
        series.append(
            at_s, math.fsum(known) / len(known) if all(map(math.isfinite, known)) else math.nan
        )
