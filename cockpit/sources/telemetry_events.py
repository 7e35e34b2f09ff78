"""Telemetry records as the model's events."""

from __future__ import annotations

from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    Event,
    MetricsReported,
    RankSampled,
    RunSeen,
)
from cockpit.model.run import Checkpoint, Placement, RankSample, RunState
from cockpit.model.text import clean, one_line
from training.telemetry import wire

SOURCE = "telemetry"


def event_of(record: wire.Record) -> Event:
    at_s, body = record.t, record.body
    match body:
        case wire.Run():
            known = body.state in RunState.__members__
            return RunSeen(
                at_s=at_s,
                source=SOURCE,
                run_id=body.run,
                name=one_line(body.name),
                state=RunState(body.state) if known else RunState.UNKNOWN,
                job_id=body.job,
                submission_id=body.submission,
                world_size=body.world_size,
                message=one_line(body.message),
            )
        case wire.AttemptStart():
            placements = tuple(
                Placement(w.rank, w.node_id, w.node_ip, w.pid, w.gpu_ids) for w in body.workers
            )
            return AttemptStarted(
                at_s=at_s,
                source=SOURCE,
                run_id=body.run,
                attempt=body.attempt,
                placements=placements,
            )
        case wire.AttemptEnd():
            return AttemptEnded(
                at_s=at_s,
                source=SOURCE,
                run_id=body.run,
                attempt=body.attempt,
                reason=one_line(body.reason),
            )
        case wire.Tick():
            return RankSampled(
                at_s=at_s, source=SOURCE, run_id=body.run, samples=tuple(map(_sample, body.ranks))
            )
        case wire.Report():
            return MetricsReported(
                at_s=at_s,
                source=SOURCE,
                run_id=body.run,
                attempt=body.attempt,
                metrics={clean(name): value for name, value in body.metrics.items()},
                checkpoint=_checkpoint(body),
            )


def _sample(steps: wire.Steps) -> RankSample:
    return RankSample(
        rank=steps.rank,
        attempt=steps.attempt,
        at_s=steps.t,
        step=steps.step,
        first_step=steps.first_step,
        steps_total=steps.steps_total,
        epoch=steps.epoch,
        loss=steps.loss,
        samples_per_s=steps.samples_per_s,
        step_time_s=steps.step_time_s,
        data_wait_s=steps.data_wait_s,
        comm_s=steps.comm_s,
        checkpoint_s=steps.checkpoint_s,
        learning_rate=steps.learning_rate,
        grad_norm=steps.grad_norm,
        cpu_percent=steps.cpu_percent,
        memory_bytes=steps.memory_bytes,
        gpu_utilization_percent=steps.gpu_utilization_percent,
        gpu_memory_bytes=steps.gpu_memory_bytes,
        gpu_power_w=steps.gpu_power_w,
        gpu_temperature_c=steps.gpu_temperature_c,
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
    )
