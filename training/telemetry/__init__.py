"""Report a training loop to the telemetry.

    from training import telemetry

    telemetry.resume(step=checkpointed_step)   # once, when the loop resumes from a checkpoint
    telemetry.model(flops_per_token=…)         # once, for the utilisation of the device
    with telemetry.section("forward"):         # where a step spends its time, in any detail
        loss = model(batch)
    telemetry.step(loss=loss, samples=len(batch))

Outside a run with the telemetry callback all of them do nothing. They never raise, wait for the
device, or wait for the network. This package imports neither ray nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Literal, SupportsFloat, TypeAlias, TypeVar, cast

from training.telemetry.worker.flops import transformer_flops_per_token

if TYPE_CHECKING:
    from training.telemetry.worker.worker import RankTelemetry

__all__ = [
    "ddp",
    "model",
    "resume",
    "section",
    "step",
    "transformer_flops_per_token",
    "wrap_loader",
]

SectionName: TypeAlias = Literal[
    "data", "forward", "backward", "communication", "optimizer", "checkpoint"
]
Loader = TypeVar("Loader", bound=Iterable[object])

_rank: RankTelemetry | None = None
"""Set by `training.telemetry.worker.worker.attach` in a rank's process."""

_NOTHING: AbstractContextManager[None, None] = nullcontext()


def step(
    *,
    loss: SupportsFloat | None = None,
    samples: SupportsFloat | None = None,
    tokens: SupportsFloat | None = None,
    epoch: float | None = None,
    learning_rate: SupportsFloat | None = None,
    grad_norm: SupportsFloat | None = None,
    step: int | None = None,
    data_wait_s: float | None = None,
    comm_s: float | None = None,
    checkpoint_s: float | None = None,
) -> None:
    """Report that one optimiser step is done. Call it at the end of every step, on every rank.

    `loss`, `learning_rate` and `grad_norm` may be tensors on any device: the newest of each is read
    about once a second, on another thread. `samples` and `tokens` are this rank's in this step;
    tensors are summed on their device. `step` is the global number of the step, counted from 1;
    without it the steps are counted. The times are seconds since the last call that were spent
    waiting for data, in collectives, and blocked on a checkpoint, unless `section` already times
    them: they are added to it.
    """
    if _rank is not None:
        _rank.step(
            loss,
            samples,
            epoch,
            learning_rate,
            grad_norm,
            step,
            data_wait_s,
            comm_s,
            checkpoint_s,
            tokens,
        )


def section(name: SectionName) -> AbstractContextManager[None, None]:
    """Time the code within it: `with telemetry.section("forward"): …`.

    Call it on the thread that calls `step`. On a GPU the device's own time is measured, between two
    CUDA events on the current stream; "checkpoint" is the host's time. The time of a nested section
    does not count for the outer one.
    """
    if _rank is None:
        return _NOTHING
    try:
        return _rank.sections[name]
    except (KeyError, TypeError):  # a list is no key
        return _rank.no_section(name)


def wrap_loader(batches: Loader) -> Loader:
    """The loader, with every wait for its next batch timed as the section "data".

    Outside a run it returns the same object; else the result has the loader's length and
    attributes.
    """
    return batches if _rank is None else cast("Loader", _rank.wrap(batches))


def model(
    *,
    flops_per_sample: float | None = None,
    flops_per_token: float | None = None,
    peak_flops: float | None = None,
) -> None:
    """Report the FLOPs of the model, forward and backward, so that `step` yields the MFU.

    In FLOPs (a multiplication and an addition are two), for this rank's share if the model is split
    over ranks. `peak_flops` is FLOPs per second of all devices of this rank; by default the dense
    bfloat16 peak for the GPU's name is used, and without a known peak there is no MFU. See
    `transformer_flops_per_token`.
    """
    if _rank is not None:
        _rank.model(flops_per_sample, flops_per_token, peak_flops)


def ddp(module: object) -> None:
    """Report how long each step waits for the all-reduce of this DistributedDataParallel.

    DDP's own timers measure it, in some of the steps; it counts as communication and no longer as
    "backward". What the backward pass hides is not counted.
    """
    if _rank is not None:
        _rank.ddp(module)


def resume(*, step: int) -> None:
    """Set the last global step before this loop resumes: the next one is `step + 1`."""
    if _rank is not None:
        _rank.resume(step)
