"""A rank's record: the folded steps, times and device numbers since the last one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from training.telemetry.gpu.gpu import GpuNumbers
from training.telemetry.wire import Steps
from training.telemetry.worker.overlap import Exposed
from training.telemetry.worker.process_usage import Process
from training.telemetry.worker.step_aggregate import AggregatedSteps


def record(
    rank: int,
    attempt: int,
    folded: AggregatedSteps,
    took_s: Mapping[str, float],
    exposed: Exposed | None,
    gpu: GpuNumbers,
    process: Process,
    mfu_percent: float | None,
) -> Steps:
    """`took_s` is by section, as `Sections.take` gives it."""
    exposed_s, backward_s = None, took_s.get("backward")
    if exposed is not None:
        # DDP times one step of many: its share is valid for their mean, its seconds may not be.
        exposed_s = exposed.seconds if backward_s is None else exposed.share * backward_s
        backward_s = None if backward_s is None else backward_s - exposed_s
    communication_s = _sum(took_s.get("communication"), exposed_s)
    numbers = asdict(folded) | {
        "data_wait_s": _sum(folded.data_wait_s, took_s.get("data")),
        "comm_s": _sum(folded.comm_s, communication_s),
        "checkpoint_s": _sum(folded.checkpoint_s, took_s.get("checkpoint")),
    }
    return Steps(
        rank=rank,
        attempt=attempt,
        forward_s=took_s.get("forward"),
        backward_s=backward_s,
        optimizer_s=took_s.get("optimizer"),
        mfu_percent=mfu_percent,
        cpu_percent=process.cpu_percent(),
        memory_bytes=process.memory_bytes(),
        **numbers,
        **{f"gpu_{name}": value for name, value in asdict(gpu).items()},
    )


def _sum(reported: float | None, timed: float | None) -> float | None:
    """The sum of a time that the loop passed and one that a section measured."""
    if reported is None or timed is None:
        return timed if reported is None else reported
    return reported + timed
