"""Compute a run's summary during the recording, in little memory.

Values that need the complete store, such as goodput, come from the owner of the store
(`Recorder.summarise`); until then those fields are None.
"""

from __future__ import annotations

import math
import statistics

from msgspec import Struct, field

from cockpit.model.event import (
    AlertRaised,
    AttemptStarted,
    ClusterSeen,
    DrillInjected,
    Event,
    JobsListed,
    Marked,
    MetricsReported,
    RankSampled,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import Job, RankSample, RunState, RunSummary
from cockpit.store.job_end import ENDED_WITH_JOB, JobListing
from cockpit.store.selectors import reported_step
from cockpit.store.series import Series

POINTS = 4_096


class Marker(Struct, frozen=True):
    """A position for seeks in a replay."""

    at_s: float
    kind: str
    """`attempt`, `drill`, `alert`, `mark` or `end`."""
    text: str = ""


class RunningSummary(Struct):
    run_id: str = ""
    name: str = ""
    state: RunState = RunState.UNKNOWN
    submission: str = ""
    entrypoint: str = ""
    world_size: int | None = None
    started_s: float | None = None
    ended_s: float | None = None
    attempts: int = 0
    steps: int = 0
    loss: float | None = None
    gpus: float = 0.0
    cluster: str = ""
    _running: bool = False
    _stepped: bool = False
    """Its ranks report their steps: a reported `step` may be something else."""
    _driver: str = ""
    _seen_s: float = -math.inf
    _entered_s: float = -math.inf
    """When the run entered its state: it cannot have ended before."""
    _listed: dict[str, tuple[JobsListed, float]] = field(default_factory=dict)
    """By source: the jobs as last reported, and the moment of that."""
    _job_listing: JobListing = field(default_factory=JobListing)
    _newest: dict[int, RankSample] = field(default_factory=dict)
    _samples_per_s: Series = field(default_factory=lambda: Series(POINTS))
    _step_time_s: Series = field(default_factory=lambda: Series(POINTS))

    def take(self, event: Event, when_s: float) -> Marker | None:
        """Fold one event in; the marker that it sets, if it does."""
        match event:
            case RankSampled():
                self._sampled(event, when_s)
            case RunSeen():
                return self._seen(event, when_s)
            case ClusterSeen():
                self.cluster = str(event.ref)
            case AttemptStarted():
                self.attempts = max(self.attempts, event.attempt)
                self.world_size = len(event.placements) or self.world_size
                self.gpus = float(sum(len(of.gpus) for of in event.placements)) or self.gpus
                self._newest.clear()
                return Marker(when_s, "attempt", f"attempt {event.attempt}")
            case JobsListed():
                self._listed[event.source] = event, when_s
                ended = self._end_with_job(event.at_s, when_s)
                if event.source == "ray":
                    ended = ended or self._end_lost_job(event.at_s, when_s)
                return ended
            case SourceHealth() if event.source == "ray" and event.ok:
                return self._end_lost_job(event.at_s, when_s)
            case MetricsReported():
                step = None if self._stepped else reported_step(event.metrics)
                self.steps = max(self.steps, step or 0)
            case DrillInjected():
                return Marker(when_s, "drill", f"{event.drill.fault} of {event.drill.target}")
            case AlertRaised():
                return Marker(when_s, "alert", event.alert.finding.what)
            case Marked():
                return Marker(when_s, "mark", event.text)
        return None

    def _end_with_job(self, at_s: float, when_s: float) -> Marker | None:
        """A run whose job was stopped or killed never reports it itself (as in the store).

        The job may have been listed before the run reported it as its own.
        """
        found = self._job()
        if found is None:
            return None
        job, listed_when_s = found
        self.entrypoint = job.entrypoint
        if self.state.is_over or not job.status.is_over:
            return None
        state = ENDED_WITH_JOB[job.status]
        return self._end(job.ended_s or at_s, state, max(when_s, listed_when_s))

    def _end_lost_job(self, at_s: float, when_s: float) -> Marker | None:
        """As in the store: Ray answers without its job."""
        if self.state.is_over:
            return None
        is_listed = self._job() is not None
        entered_s = self._entered_s if self._entered_s > -math.inf else at_s
        lost = self._job_listing.update(at_s, self.submission, entered_s, is_listed=is_listed)
        return None if lost is None else self._end(lost.since_s, lost.state, when_s)

    def _end(self, at_s: float, state: RunState, when_s: float) -> Marker:
        self.state, self._running = state, False
        self.ended_s = self._entered_s = max(at_s, self._entered_s)
        return Marker(when_s, "end", state.value)

    def _job(self) -> tuple[Job, float] | None:
        """The run's own, and when it was listed; Ray's state of it counts before the backend's."""
        for source in sorted(self._listed, key=lambda source: source == "backend"):
            event, when_s = self._listed[source]
            for job in event.jobs:
                if self.submission and job.id == self.submission:
                    return job, when_s
        return None

    def _seen(self, event: RunSeen, when_s: float) -> Marker | None:
        self.run_id = self.run_id or event.run_id
        other = bool(self._driver and event.job_id) and event.job_id != self._driver
        if other and event.at_s < self._seen_s:
            return None  # of an earlier driver, whose stream is read later (as in the store)
        self._driver, self._seen_s = event.job_id or self._driver, event.at_s
        self.name = event.name or self.name
        self.submission = event.submission_id or self.submission
        self.world_size = event.world_size or self.world_size
        self.started_s = event.at_s if self.started_s is None else self.started_s
        if event.state is not self.state:
            self._entered_s = event.at_s
        was_over, self.state = self.state.is_over, event.state
        self._running = event.state is RunState.RUNNING
        self.ended_s = event.at_s if event.state.is_over else None
        ended = self._end_with_job(event.at_s, when_s)
        if was_over:
            return None
        if event.state.is_over:
            return Marker(when_s, "end", event.state.value)
        return ended

    def _sampled(self, event: RankSampled, when_s: float) -> None:
        self._stepped = True
        spreads = {spread.name: spread for spread in event.spreads}
        for sample in event.samples:
            self.steps = max(self.steps, sample.step)
            if not spreads:
                self._newest[sample.rank] = sample
        if spreads:
            throughput, step_time = spreads.get("samples_per_s"), spreads.get("step_time_s")
            reported = (
                throughput.mean * throughput.count if throughput else None,
                step_time.mean if step_time else None,
                spreads["loss"].mean if "loss" in spreads else None,
            )
            if "step" in spreads:
                self.steps = max(self.steps, int(spreads["step"].high))
        else:
            ranks = self._newest.values()
            each = [s.samples_per_s for s in ranks if s.samples_per_s is not None]
            times = [s.step_time_s for s in ranks if s.step_time_s is not None]
            losses = [s.loss for s in ranks if s.loss is not None]
            reported = (
                sum(each) if each else None,
                sum(times) / len(times) if times else None,
                sum(losses) / len(losses) if losses else None,
            )
        self.loss = self.loss if reported[2] is None else reported[2]
        if self._running:
            for series, value in zip(
                (self._samples_per_s, self._step_time_s), reported, strict=False
            ):
                if value is not None and math.isfinite(value):
                    series.append(when_s, value)

    def summary(self) -> RunSummary:
        return RunSummary(
            run_id=self.run_id,
            name=self.name,
            job=self.entrypoint or self.name,
            state=self.state,
            world_size=self.world_size,
            gpus=self.gpus,
            started_s=self.started_s,
            ended_s=self.ended_s,
            attempts=self.attempts,
            steps=self.steps,
            samples_per_s=_median(self._samples_per_s),
            step_time_s=_median(self._step_time_s),
            loss=self.loss,
            submission_id=self.submission,
            cluster=self.cluster,
        )


def _median(series: Series) -> float | None:
    return statistics.median(series.values) if len(series) else None
