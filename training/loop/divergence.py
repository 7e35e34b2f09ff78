"""Detect divergence without waiting for the device."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

SKIPPED = 25
"""The number of consecutive steps that a loss scale of 2^16 can explain; more have another cause.
"""

Numbers: TypeAlias = tuple[float, float]
Later: TypeAlias = Callable[[], Numbers]


class Finite:
    """The norm of each step's gradient; on a GPU it is read during the next step.

    All ranks see the same norm, and so reach the same result.
    """

    def __init__(self, device: torch.device, *, skips_steps: bool) -> None:
        """`skips_steps`: the loss scale skips steps that are not finite."""
        self._allowed = SKIPPED if skips_steps else 0
        self._wrong = 0
        self._late = 1 if device.type == "cuda" else 0
        self._unread: deque[tuple[int, Later]] = deque()

    def step(self, step: int, loss: Tensor, length: Tensor) -> None:
        numbers = torch.stack((loss.detach().float(), length.detach().float()))
        self._unread.append((step, _under_way(numbers) if numbers.is_cuda else _there(numbers)))

    def first_wrong(self, *, newest: bool = False) -> tuple[int, float] | None:
        """The step that was not finite, and this rank's loss in it.

        With `newest` it waits for the newest step, before its result is used.
        """
        while len(self._unread) > (0 if newest else self._late):
            step, numbers = self._unread.popleft()
            loss, length = numbers()
            self._wrong = 0 if math.isfinite(length) else self._wrong + 1
            if self._wrong > self._allowed:
                return step, loss
        return None


def _there(numbers: Tensor) -> Later:
    return lambda: (float(numbers[0]), float(numbers[1]))


def _under_way(numbers: Tensor) -> Later:
    """Reading a tensor of a GPU waits for everything that is queued there; this copy waits only for
    its own end, which was queued one step ago.
    """
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    on_host = numbers.to("cpu", non_blocking=True)
    copied.record(torch.cuda.current_stream(numbers.device))

    def read() -> Numbers:
        copied.synchronize()
        return float(on_host[0]), float(on_host[1])

    return read


def why_not_finite(step: int, losses: list[float]) -> str:
    """`losses`: those of every rank in that step."""
    ranks = [index for index, loss in enumerate(losses) if not math.isfinite(loss)]
    if not ranks:
        return f"the gradients are not finite at step {step}, though every rank's loss is"
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    return f"the loss became {losses[ranks[0]]} at step {step} on {who}"
