"""Telemetry records as the model's events."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    Event,
    MetricsReported,
    Notice,
    PhaseEntered,
    QuorumFormed,
    RankSampled,
    RanksReplaced,
    RunSeen,
    TrialsListed,
)
from cockpit.model.run import (
    Checkpoint,
    Heal,
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
from cockpit.sources.telemetry.files import SOURCE
from cockpit.sources.telemetry.hang import ranks_dumped
from cockpit.sources.telemetry.same_fields import copied
from training.telemetry import wire

INFORMATION = frozenset({"CheckpointsInMemoryAgain", "CheckpointsInMemoryBegin", "Resumed"})
"""Reasons of notices from ranks that are no warnings."""


def event_of(record: wire.Record) -> Event | None:
    """None for what is of the stream alone, or is called by a name that this version lacks."""
    body = record.body
    common: dict[str, Any] = {"at_s": record.t, "source": SOURCE}
    if isinstance(body, wire.Trials):
        trials = tuple(_trial(trial, body.experiment) for trial in body.trials)
        return copied(TrialsListed, body, **common, trials=trials)
    if isinstance(body, wire.Segment):
        return None
    if isinstance(body, wire.Hang):
        return ranks_dumped(record.t, SOURCE, body)
    run_id = one_line(body.run)
    match body:
        case wire.Run():
            return copied(
                RunSeen,
                body,
                **common,
                run_id=run_id,
                state=RunState.__members__.get(body.state, RunState.UNKNOWN),
                job_id=one_line(body.job),
                submission_id=one_line(body.submission),
            )
        case wire.AttemptStart():
            placements = tuple(copied(Placement, worker) for worker in body.workers)
            return copied(AttemptStarted, body, **common, run_id=run_id, placements=placements)
        case wire.RanksReplaced():
            placements = tuple(copied(Placement, worker) for worker in body.workers)
            return copied(RanksReplaced, body, **common, run_id=run_id, placements=placements)
        case wire.Quorum():
            heals = tuple(copied(Heal, heal) for heal in body.heals)
            return copied(QuorumFormed, body, **common, run_id=run_id, heals=heals)
        case wire.AttemptEnd():
            return copied(AttemptEnded, body, **common, run_id=run_id)
        case wire.Tick():
            return copied(
                RankSampled,
                body,
                **common,
                run_id=run_id,
                samples=tuple(map(_sample, body.ranks)),
                spreads=tuple(copied(Spread, spread) for spread in body.spreads),
            )
        case wire.Phase():
            if body.phase not in _PHASES:
                return None
            return copied(PhaseEntered, body, **common, run_id=run_id, phase=Phase(body.phase))
        case wire.Notice():
            message = f"rank {body.rank}: {one_line(body.message)}"
            return copied(
                Notice,
                body,
                **common,
                kind="Run",
                name=run_id,
                message=message,
                warning=body.reason not in INFORMATION,
            )
        case wire.Report():
            return copied(
                MetricsReported,
                body,
                **common,
                run_id=run_id,
                metrics=_named(body.metrics),
                checkpoint=_checkpoint(body),
                ranks=tuple(RankMetrics(of.rank, _named(of.metrics)) for of in body.by_rank),
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


def _named(metrics: dict[str, float]) -> dict[str, float]:
    return {clean(name): value for name, value in metrics.items()}


def _trial(reported: wire.Trial, experiment: str) -> Trial:
    return copied(
        Trial,
        reported,
        experiment=one_line(experiment),
        status=TrialStatus.__members__.get(reported.status, TrialStatus.PENDING),
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
