"""What a training loop tells about itself.

    from training import telemetry

    telemetry.resume(step=checkpointed_step)   # once, when the loop goes on from a checkpoint
    telemetry.step(loss=loss, samples=len(batch))

Outside a run that carries the telemetry callback both do nothing. Neither ever raises, waits for
the device, or waits for the network. This package imports neither ray nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsFloat

if TYPE_CHECKING:
    from training.telemetry.worker import RankTelemetry

__all__ = ["resume", "step"]

_rank: RankTelemetry | None = None
"""Set by `training.telemetry.worker.attach` in a rank's process."""


def step(
    *,
    loss: SupportsFloat | None = None,
    samples: int | None = None,
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
    read about once a second, on another thread. `samples` are this rank's in this step. `step` is
    the global number of the step, counted from 1; without it the steps are counted. The times are
    seconds since the last call that were spent waiting for data, in collectives, and blocked on a
    checkpoint.
    """
    if _rank is not None:
        _rank.step(
            loss, samples, epoch, learning_rate, grad_norm, step, data_wait_s, comm_s, checkpoint_s
        )


def resume(*, step: int) -> None:
    """The last global step that was done before this loop goes on: the next one is `step + 1`."""
    if _rank is not None:
        _rank.resume(step)
