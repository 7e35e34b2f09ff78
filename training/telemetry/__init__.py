"""What a training loop tells about itself.

    from training import telemetry

    telemetry.resume(step=checkpointed_step)   # once, when the loop goes on from a checkpoint
    telemetry.model(flops_per_token=…)         # once, for the share of the device that is used
    with telemetry.section("forward"):         # where a step's time goes, as fine as you like
        loss = model(batch)
    telemetry.step(loss=loss, samples=len(batch))

Outside a run that carries the telemetry callback all of them do nothing. None ever raises, waits
for the device, or waits for the network. This package imports neither ray nor torch.
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
    """Say that one optimiser step is done. Call it at the end of every step, on every rank.

    `loss`, `learning_rate` and `grad_norm` may be tensors on any device: the newest of each is
    read about once a second, on another thread. `samples` and `tokens` are this rank's in this
    step; tensors are summed where they are. `step` is the global number of the step, counted from
    1; without it the steps are counted. The times are seconds since the last call that were spent
    waiting for data, in collectives, and blocked on a checkpoint, where `section` does not time
    them already: they are added to it.
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
    """Time what is done within it: `with telemetry.section("forward"): …`.

    Call it on the thread that calls `step`. On a GPU the device's own time is taken, between two
    CUDA events on the current stream; "checkpoint" is the host's time. A section within another
    takes its time from it.
    """
    if _rank is None:
        return _NOTHING
    try:
        return _rank.sections[name]
    except (KeyError, TypeError):  # a list is no key
        return _rank.no_section(name)


def wrap_loader(batches: Loader) -> Loader:
    """The loader, with every wait for its next batch timed as the section "data".

    Outside a run it is the very same object; else it has the loader's length and attributes.
    """
    return batches if _rank is None else cast("Loader", _rank.wrap(batches))


def model(
    *,
    flops_per_sample: float | None = None,
    flops_per_token: float | None = None,
    peak_flops: float | None = None,
) -> None:
    """What the model needs, forward and backward, so that `step`'s samples or tokens give the MFU.

    In FLOPs (a multiplication and an addition are two), of this rank's share when the model is
    split over ranks. `peak_flops` is FLOPs per second of all devices of this rank; without it the
    dense bfloat16 peak of the GPU's name counts, and with none known there is no MFU. See
    `transformer_flops_per_token`.
    """
    if _rank is not None:
        _rank.model(flops_per_sample, flops_per_token, peak_flops)


def ddp(module: object) -> None:
    """Tell how long each step waited for the all-reduce of this DistributedDataParallel.

    DDP's own timers tell it, in some of the steps; it counts as communication and no longer as
    "backward". What the backward pass hides is not counted.
    """
    if _rank is not None:
        _rank.ddp(module)


def resume(*, step: int) -> None:
    """The last global step that was done before this loop goes on: the next one is `step + 1`."""
    if _rank is not None:
        _rank.resume(step)
