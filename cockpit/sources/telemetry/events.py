"""Telemetry records as the model's events."""

from __future__ import annotations

from dataclasses import fields

from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    Event,
    MetricsReported,
    Notice,
    PhaseEntered,
    RankSampled,
    RunSeen,
    TrialsListed,
)
from cockpit.model.run import (
    Checkpoint,
    Phase,
    Placement,
    RankMetrics,
    RankSample,
    RunState,
    Spread,
    Trial,
    TrialStatus,
)
from cockpit.model.text import clean, one_line
from cockpit.sources.telemetry.hang import ranks_dumped
from training.telemetry import wire

SOURCE = "telemetry"


def event_of(record: wire.Record) -> Event | None:
    """None for what is of the stream alone, or is called by a name that this version lacks."""
    at_s, body = record.t, record.body
    match body:
        case wire.Run():
            is_known = body.state in RunState.__members__
            return RunSeen(
                at_s=at_s,
                source=SOURCE,
                run_id=one_line(body.run),
                name=one_line(body.name),
                state=RunState(body.state) if is_known else RunState.UNKNOWN,
                job_id=one_line(body.job),
                submission_id=one_line(body.submission),
                world_size=body.world_size,
                message=one_line(body.message),
                max_failures=body.max_failures,
                max_preemption_failures=body.max_preemption_failures,
            )
        case wire.AttemptStart():
            placements = tuple(
                Placement(w.rank, one_line(w.node_id), one_line(w.node_ip), w.pid, w.gpu_ids)
                for w in body.workers
            )
            return AttemptStarted(
                at_s=at_s,
                source=SOURCE,
                run_id=one_line(body.run),
                attempt=body.attempt,
                placements=placements,
            )
        case wire.AttemptEnd():
            return AttemptEnded(
                at_s=at_s,
                source=SOURCE,
                run_id=one_line(body.run),
                attempt=body.attempt,
                reason=one_line(body.reason),
                budget=one_line(body.budget),
            )
        case wire.Tick():
            return RankSampled(
                at_s=at_s,
                source=SOURCE,
                run_id=one_line(body.run),
                samples=tuple(map(_sample, body.ranks)),
                spreads=tuple(map(_spread, body.spreads)),
                attempt=body.attempt,
                reporting=body.reporting,
                silent=body.silent,
            )
        case wire.Segment():
            return None
        case wire.Hang():
            return ranks_dumped(at_s, SOURCE, body)
        case wire.Phase():
            if body.phase not in _PHASES:
                return None
            return PhaseEntered(
                at_s=at_s,
                source=SOURCE,
                run_id=one_line(body.run),
                attempt=body.attempt,
                phase=Phase(body.phase),
            )
        case wire.Notice():
            return Notice(
                at_s=at_s,
                source=SOURCE,
                kind="Run",
                name=one_line(body.run),
                reason=one_line(body.reason),
                message=f"rank {body.rank}: {one_line(body.message)}",
                warning=True,
            )
        case wire.Report():
            return MetricsReported(
                at_s=at_s,
                source=SOURCE,
                run_id=one_line(body.run),
                attempt=body.attempt,
                metrics={clean(name): value for name, value in body.metrics.items()},
                checkpoint=_checkpoint(body),
                ranks=tuple(
                    RankMetrics(of.rank, {clean(name): v for name, v in of.metrics.items()})
                    for of in body.by_rank
                ),
            )
        case wire.Trials():
            return TrialsListed(
                at_s=at_s,
                source=SOURCE,
                experiment=one_line(body.experiment),
                trials=tuple(_trial(trial, body.experiment) for trial in body.trials),
                metric=one_line(body.metric),
                mode=one_line(body.mode),
            )


_PHASES = frozenset(phase.value for phase in Phase)

_SAME = tuple(item.name for item in fields(wire.Steps) if item.name not in ("t", "gpu_throttle"))
"""Fields of a rank's record that are called the same in the model."""


def _sample(steps: wire.Steps) -> RankSample:
    throttle = steps.gpu_throttle
    return RankSample(
        at_s=steps.t,
        gpu_throttle=None if throttle is None else one_line(throttle),
        **{name: getattr(steps, name) for name in _SAME},
    )


def _spread(reported: wire.Spread) -> Spread:
    numbers = {item.name: getattr(reported, item.name) for item in fields(wire.Spread)}
    return Spread(**numbers | {"name": one_line(reported.name)})


def _trial(reported: wire.Trial, experiment: str) -> Trial:
    is_known = reported.status in TrialStatus.__members__
    return Trial(
        id=one_line(reported.id),
        experiment=one_line(experiment),
        status=TrialStatus(reported.status) if is_known else TrialStatus.PENDING,
        config={one_line(name): one_line(value) for name, value in reported.config.items()},
        metrics={one_line(name): value for name, value in reported.metrics.items()},
        iteration=reported.iteration,
        started_s=reported.started_s,
        updated_s=reported.updated_s,
        node_ip=one_line(reported.node_ip),
        pid=reported.pid,
        error=one_line(reported.error),
        run_id=one_line(reported.run),
    )


def _checkpoint(report: wire.Report) -> Checkpoint | None:
    if not report.checkpoint:
        return None
    step = report.metrics.get("step")
    whole = step is not None and step == step and abs(step) != float("inf")
    return Checkpoint(
        step=int(step) if step is not None and whole else None,
        path=clean(report.checkpoint),
        metrics=report.metrics,
        size_bytes=report.checkpoint_bytes,
        took_s=report.checkpoint_took_s,
    )
