"""The state of one run: its attempts, ranks and metric curves."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.model.event import MetricsReported, QuorumFormed, RankSampled
from cockpit.model.run import (
    Checkpoint,
    Heal,
    Phase,
    Placement,
    RankSample,
    RunState,
    Spread,
)
from cockpit.model.tracking import GpuActivity
from cockpit.store.hang import HangView
from cockpit.store.job_end import JobListing
from cockpit.store.series import Curves, Series
from training.telemetry.metric_table import ACTIVITY, CURVES

RANK_POINTS = 900
"""Points per curve of a rank: the newest 7 minutes at 1 Hz in full, older ones downsampled."""
ALL_RANKS_POINTS = 240_000
"""Points that a curve may have over all ranks together: those of a large world are shorter."""
RUN_POINTS = 14_400
"""Points per curve of a run: the newest 2 hours at 1 Hz in full, older ones downsampled."""
REPORT_POINTS = 2_000
STATES_KEPT = 500
PHASES_KEPT = 1_000
CHECKPOINTS_KEPT = 500
PLACED_ATTEMPTS = 50
"""The newest attempts of a run whose ranks' nodes and processes are known in any case."""
PLACES_KEPT = 200_000
"""Ranks of all attempts together whose nodes and processes are known."""
ATTEMPTS_AHEAD = 10_000
"""How much higher than the known attempts that of a sample may be. A higher one is not true, and
would hide the samples of all later attempts.
"""
OLD_RANK_POINTS, OLD_RUN_POINTS, OLD_CHECKPOINTS = 60, 240, 20
"""The same of a run that is over, when several others have ended since: enough for its charts."""
_NONE: dict[str, float] = {}

THINNED_CURVES = ("loss", "step_time_s", "samples_per_s")
"""The curves that keep their newest point when a run is pruned."""


class AttemptView(Struct):
    """One worker-group start."""

    number: int
    started_s: float | None = None
    ended_s: float | None = None
    reason: str = ""
    budget: str = ""
    """What its end counts against, as in `AttemptEnded`."""
    placements: tuple[Placement, ...] = ()
    """Of old attempts in a crash loop without nodes and processes: see `forget_places`."""
    first_step: int | None = None
    """The lowest step of any rank, at which the attempt resumed."""
    first_step_s: float | None = None
    """When the first sample with a step was received."""
    last_step: int | None = None
    last_step_s: float | None = None
    """When that was done."""
    reported_s: float | None = None
    """When its first report was accepted."""

    def reach(self, step: int, at_s: float) -> None:
        if self.last_step is None or step > self.last_step:
            self.last_step, self.last_step_s = max(0, step), at_s


class RankView(Struct):
    """One rank: its newest sample, where it runs, and its curves over all attempts."""

    rank: int
    placement: Placement | None = None
    sample: RankSample | None = None
    loss_first: float | None = None
    """The first loss of the run that this rank reported."""
    steps: int = 0
    """Steps done by this rank over all attempts, redone ones included."""
    activity: GpuActivity | None = None
    """DCGM's newest numbers of its GPUs."""
    curves: Curves = field(default_factory=lambda: Curves(RANK_POINTS))
    """By field of `RankSample`, those of CURVES, and by field of `GpuActivity`, ACTIVITY."""
    reported: dict[str, float] = field(default_factory=dict)
    """The values of its newest report."""


class ReplicaView(Struct, frozen=True):
    """The replicas of a run that continues without lost ones."""

    at_s: float
    """Since when these take part."""
    attempt: int
    number: int
    """Of the quorum."""
    replicas: int
    members: tuple[int, ...]
    """Ranks."""
    step: int
    """The last step before."""
    healed: Heal | None = None
    """The newest one that joined after the first quorum."""
    healed_s: float | None = None
    healed_step: int | None = None

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(self.replicas) if rank not in self.members)


class RunView(Struct):
    """One run."""

    id: str
    name: str = ""
    state: RunState = RunState.UNKNOWN
    job_id: str = ""
    submission_id: str = ""
    job_listing: JobListing = field(default_factory=JobListing)
    world_size: int | None = None
    max_failures: int | None = None
    max_preemption_failures: int | None = None
    """As in `RunSeen`."""
    message: str = ""
    started_s: float = 0.0
    ended_s: float | None = None
    states: list[tuple[float, RunState]] = field(default_factory=list)
    phases: list[tuple[float, int, Phase]] = field(default_factory=list)
    """When which attempt entered which phase, in order of time."""
    attempts: dict[int, AttemptView] = field(default_factory=dict)
    ranks: dict[int, RankView] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    """The newest reported value of each metric."""
    reported_s: float | None = None
    checkpoint: Checkpoint | None = None
    checkpoint_s: float | None = None
    checkpoints: list[tuple[float, Checkpoint]] = field(default_factory=list)
    """The newest ones, and when each was accepted. Without metrics, half of its memory: `reported`
    has them."""
    checkpoint_count: int = 0
    """Of all that were accepted."""
    samples_seen: int = 0
    """Rank samples received: one a rank and tick."""
    curves: Curves = field(default_factory=lambda: Curves(RUN_POINTS))
    """By field of `RankSample`."""
    bands: Curves = field(default_factory=lambda: Curves(RUN_POINTS))
    """`loss.p10`, `loss.p90`, … for each metric with a band, where there are enough ranks."""
    reported: Curves = field(default_factory=lambda: Curves(REPORT_POINTS))
    """By name of a reported metric."""
    progress: Series = field(default_factory=lambda: Series(RUN_POINTS))
    """The step of the newest sample of any rank. It decreases when an attempt repeats steps."""
    spreads: dict[str, Spread] = field(default_factory=dict)
    """Of a large world, the newest tick's."""
    reporting: int | None = None
    silent: tuple[int, ...] = ()
    """Of a large world: as in `RankSampled`."""
    quorum: ReplicaView | None = None
    """None for a run whose ranks all take part in every step."""
    hang: HangView = field(default_factory=HangView)
    is_thinned: bool = False
    """Its curves and ranks were dropped: many runs have ended since. A recording has them."""

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
        self.is_thinned = self.is_thinned and state.is_over

    def share_times(self) -> None:
        """Let curves with the same times share them: the run is over."""
        known: dict[bytes, Series] = {}
        of_ranks = (rank.curves for rank in self.ranks.values())
        for curves in (self.curves, self.bands, self.reported, *of_ranks):
            curves.share_times(known)
        self.progress.share_times(known)

    def downsample(self) -> None:
        """Keep fewer points of all curves and fewer checkpoints: other runs have ended since."""
        for curves in (self.curves, self.bands, self.reported):
            curves.limit(OLD_RUN_POINTS)
        self.progress.limit(OLD_RUN_POINTS)
        for rank in self.ranks.values():
            rank.curves.limit(OLD_RANK_POINTS)
        del self.checkpoints[:-OLD_CHECKPOINTS]
        self.share_times()

    def thin(self) -> None:
        """Delete the ranks and the curves, except for the newest points."""
        self.is_thinned = True
        newest = Curves(RUN_POINTS)
        for name in THINNED_CURVES:
            if times := self.curves[name].times:
                newest.append(name, times[-1], self.curves[name].values[-1])
        self.curves, self.bands = newest, Curves(RUN_POINTS)
        self.reported, self.progress = Curves(REPORT_POINTS), Series(RUN_POINTS)
        self.ranks, self.spreads, self.hang = {}, {}, HangView()
        del self.phases[:], self.checkpoints[:-1]

    def attempt_view(self, number: int) -> AttemptView:
        return self.attempts.setdefault(number, AttemptView(number))

    def start_attempt(self, number: int) -> AttemptView:
        """Delete what a false sample may have made before the first start was known."""
        for later in [of for of in self.attempts if of > number + ATTEMPTS_AHEAD]:
            if self.attempts[later].started_s is None:
                del self.attempts[later]
        return self.attempt_view(number)

    def forget_places(self, kept: Collection[int]) -> None:
        """Delete nodes and processes from the placements of old attempts, except of those `kept`.

        Attempts in a row then share them. Otherwise a crash loop of many ranks fills the memory.
        """
        most = max(PLACED_ATTEMPTS, PLACES_KEPT // max(1, self.world_size or 0))
        for number in sorted(self.attempts)[:-most]:
            view, before = self.attempts[number], self.attempts.get(number - 1)
            if number in kept or not view.placements or not view.placements[0].node_id:
                continue
            view.placements = tuple(
                replace(placed, node_id="", node_ip="", pid=0) for placed in view.placements
            )
            if before is not None and before.placements == view.placements:
                view.placements = before.placements

    def _is_plausible(self, attempt: int) -> bool:
        known = self.attempts
        return attempt in known or not known or attempt <= max(known) + ATTEMPTS_AHEAD

    def enter_phase(self, at_s: float, attempt: int, phase: Phase) -> None:
        if (at_s, attempt, phase) in self.phases[-20:]:
            return  # a record may be received twice
        self.phases.append((at_s, attempt, phase))
        if len(self.phases) > 1 and at_s < self.phases[-2][0]:
            self.phases.sort(key=lambda entered: entered[0])
        del self.phases[:-PHASES_KEPT]

    def rank_view(self, number: int) -> RankView:
        found = self.ranks.get(number)
        if found is None:
            points = ALL_RANKS_POINTS // max(1, self.world_size or 0, len(self.ranks))
            found = RankView(number, curves=Curves(min(RANK_POINTS, max(60, points))))
            self.ranks[number] = found
        return found

    def take(self, samples: Sequence[RankSample]) -> None:
        """Fold in one tick of all ranks. A sample that is not news of its rank is dropped."""
        fresh = [sample for sample in samples if self._take_one(sample)]
        self.hang.progressed(fresh)
        if not fresh:
            return
        at_s = max(sample.at_s for sample in fresh)
        newest = max(sample.attempt for sample in fresh)
        step = max(sample.step for sample in fresh if sample.attempt == newest)
        self.progress.append(at_s, step)
        live = [
            rank.sample
            for rank in self.ranks.values()
            if rank.sample is not None and rank.sample.attempt == newest
        ]
        for name, metric in CURVES.items():
            values = [value for value in map(attrgetter(name), live) if value is not None]
            if not values:
                continue
            total = _sum(values) if all(map(math.isfinite, values)) else math.nan
            self.curves.append(name, at_s, total if metric.total else total / len(values))
            if metric.band and len(values) >= BAND_RANKS:
                self._band(name, at_s, *_tenths(values))

    def take_spreads(self, event: RankSampled) -> None:
        """Fold in one tick of a large world: some ranks, and the spreads over all of them."""
        at_s = event.at_s
        self.hang.progressed([sample for sample in event.samples if self._take_one(sample)])
        self.reporting, self.silent = event.reporting, event.silent
        self.spreads = {spread.name: spread for spread in event.spreads}
        for spread in event.spreads:
            if spread.name == "step" and self._is_plausible(event.attempt):
                self.attempt_view(event.attempt).reach(int(spread.high), at_s)
                self.progress.append(at_s, spread.high)
            if (metric := CURVES.get(spread.name)) is None:
                continue
            mean = spread.mean * spread.count if metric.total else spread.mean
            self.curves.append(spread.name, at_s, mean)
            if metric.band:
                self._band(spread.name, at_s, spread.p10, spread.p90)

    def _band(self, name: str, at_s: float, p10: float, p90: float) -> None:
        self.bands.append(f"{name}.p10", at_s, p10)
        self.bands.append(f"{name}.p90", at_s, p90)

    def _take_one(self, sample: RankSample) -> bool:
        if not self._is_plausible(sample.attempt):
            return False
        rank = self.rank_view(sample.rank)
        before = rank.sample
        # By what the process has done, and not by its clock, which may be set back.
        if before is not None and _done(sample) <= _done(before):
            return False
        self.samples_seen += 1
        rank.steps += sample.step - sample.first_step + 1
        rank.sample = sample
        if rank.loss_first is None:
            rank.loss_first = sample.loss
        for name in CURVES:
            value = getattr(sample, name)
            if value is not None:
                rank.curves.append(name, sample.at_s, value)
        attempt = self.attempt_view(sample.attempt)
        if attempt.first_step is None or sample.first_step < attempt.first_step:
            attempt.first_step = sample.first_step
        if attempt.first_step_s is None or sample.at_s < attempt.first_step_s:
            attempt.first_step_s = sample.at_s
        attempt.reach(sample.step, sample.at_s)
        return True

    def take_activity(self, at_s: float, of: Mapping[int, GpuActivity]) -> None:
        """Take DCGM's numbers by rank: a rank without any has no current ones."""
        for number, rank in self.ranks.items():
            rank.activity = of.get(number)
        for name, metric in ACTIVITY.items():
            values = {at: v for at, gpu in of.items() if (v := getattr(gpu, name)) is not None}
            for number, value in values.items():
                self.ranks[number].curves.append(name, at_s, value)
            if values:
                total = _sum(list(values.values()))
                self.curves.append(name, at_s, total if metric.total else total / len(values))

    def take_quorum(self, event: QuorumFormed) -> None:
        before = self.quorum
        if before is not None and (event.attempt, event.number) <= (before.attempt, before.number):
            return  # a record may be received twice
        first = before is None or before.attempt != event.attempt
        healed, healed_s, healed_step = None, None, None
        if event.heals and not first:
            healed, healed_s, healed_step = event.heals[-1], event.at_s, event.step
        elif before is not None and not first:
            healed, healed_s, healed_step = before.healed, before.healed_s, before.healed_step
        self.quorum = ReplicaView(
            event.at_s,
            event.attempt,
            event.number,
            # Ranks of a stream from elsewhere: what is listed is limited by what is known.
            min(event.replicas, max(self.world_size or 0, len(event.members))),
            event.members,
            event.step,
            healed,
            healed_s,
            healed_step,
        )

    def take_report(self, event: MetricsReported) -> None:
        self.reported_s = at_s = event.at_s
        self.metrics.update(event.metrics)
        for name, value in event.metrics.items():
            self.reported.append(name, at_s, value)
        for of_rank in event.ranks:
            self.rank_view(of_rank.rank).reported = of_rank.metrics
        if event.checkpoint is not None:
            self.checkpoint, self.checkpoint_s = event.checkpoint, at_s
            self.checkpoints.append((at_s, replace(event.checkpoint, metrics=_NONE)))
            self.checkpoint_count += 1
            del self.checkpoints[:-CHECKPOINTS_KEPT]


BAND_RANKS = 8
"""Fewer ranks have no percentiles worth drawing."""


def _done(sample: RankSample) -> tuple[int, int, float]:
    """Grows with every record of a rank."""
    return sample.attempt, sample.steps_total, sample.at_s


def _sum(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def _tenths(values: Sequence[float]) -> tuple[float, float]:
    """The 10th and the 90th percentile of the finite ones, by nearest rank."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return math.nan, math.nan
    last = len(finite) - 1
    return finite[round(last * 0.1)], finite[round(last * 0.9)]
