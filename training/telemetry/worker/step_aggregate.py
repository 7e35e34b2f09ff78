"""Fold many steps into one record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

StepValues: TypeAlias = tuple[Any, Any, Any, Any, Any, Any, Any, Any, Any, Any]
"""In the order of `StepAggregate.step`'s parameters: loss, samples, epoch, learning_rate,
grad_norm, step, data_wait_s, comm_s, checkpoint_s, tokens.
"""

LARGEST = 2**53
"""Whole numbers up to this are exact as floats too."""


@dataclass(frozen=True, slots=True)
class AggregatedSteps:
    """The steps `first_step` to `step`; the other fields are defined in `wire.Steps`."""

    t: float
    step: int
    first_step: int
    steps_total: int
    epoch: float | None
    loss: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    step_time_s: float | None
    data_wait_s: float | None
    comm_s: float | None
    checkpoint_s: float | None
    learning_rate: float | None
    grad_norm: float | None


class StepAggregate:
    """Folds steps until they are taken. `step` and `take` may run on different threads."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._wall = clock, wall
        self._lock = threading.Lock()
        self._step = 0
        self._total = 0
        self._began: float | None = None
        """When the step before this record ended; None before the first step of the process."""
        self._ended = 0.0
        # Of the newest step. A tensor is kept, not read: reading it would wait for the device.
        self._loss: Any = None
        self._learning_rate: Any = None
        self._grad_norm: Any = None
        self._epoch: Any = None
        self._clear()

    def _clear(self) -> None:
        self._first = 0
        self._steps = 0
        self._timed_steps = 0
        # Sums: None until a value was passed, and a tensor once one was.
        self._timed_samples: Any = None
        self._timed_tokens: Any = None
        self._data_wait: Any = None
        self._comm: Any = None
        self._checkpoint: Any = None

    @property
    def steps_total(self) -> int:
        """Steps of this process."""
        return self._total

    def resume(self, step: Any) -> None:
        with self._lock:
            self._step = _whole(step, self._step)

    def step(
        self,
        loss: Any = None,
        samples: Any = None,
        epoch: Any = None,
        learning_rate: Any = None,
        grad_norm: Any = None,
        step: Any = None,
        data_wait_s: Any = None,
        comm_s: Any = None,
        checkpoint_s: Any = None,
        tokens: Any = None,
        ended: float | None = None,
    ) -> None:
        """`ended` by the clock; None: now."""
        now = self._clock() if ended is None else ended
        with self._lock:
            self._step = self._step + 1 if step is None else _whole(step, self._step + 1)
            self._total += 1
            if self._steps == 0:
                self._first = self._step
            self._steps += 1
            if self._began is None:
                self._began = now  # the start of the first step is unknown: it is not timed
            else:
                self._timed_steps += 1
                if samples is not None:
                    self._timed_samples = _added(self._timed_samples, samples)
                if tokens is not None:
                    self._timed_tokens = _added(self._timed_tokens, tokens)
            self._ended = now
            if loss is not None:
                self._loss = kept(loss)
            if epoch is not None:
                self._epoch = kept(epoch)
            if learning_rate is not None:
                self._learning_rate = kept(learning_rate)
            if grad_norm is not None:
                self._grad_norm = kept(grad_norm)
            if data_wait_s is not None:
                self._data_wait = _added(self._data_wait, data_wait_s)
            if comm_s is not None:
                self._comm = _added(self._comm, comm_s)
            if checkpoint_s is not None:
                self._checkpoint = _added(self._checkpoint, checkpoint_s)

    def take(self) -> AggregatedSteps | None:
        """The steps folded since the last take; None if there was none.

        May wait for the device to read a tensor: do not call it on the training thread.
        """
        with self._lock:
            if self._steps == 0:
                return None
            steps, timed, first = self._steps, self._timed_steps, self._first
            began, ended = self._began, self._ended
            total, step = self._total, self._step
            counts = self._timed_samples, self._timed_tokens
            waits = self._data_wait, self._comm, self._checkpoint
            newest = self._loss, self._learning_rate, self._grad_norm, self._epoch
            self._began = ended
            self._clear()
        elapsed = ended - began if began is not None else 0.0
        timed_s = elapsed if timed and elapsed > 0 else None
        samples, tokens = (number(value) for value in counts)
        data_wait, comm, checkpoint = (number(value) for value in waits)
        loss, learning_rate, grad_norm, epoch = (number(value) for value in newest)
        return AggregatedSteps(
            t=self._wall() - max(0.0, self._clock() - ended),
            step=step,
            first_step=first,
            steps_total=total,
            epoch=epoch,
            loss=loss,
            samples_per_s=None if timed_s is None or samples is None else samples / timed_s,
            tokens_per_s=None if timed_s is None or tokens is None else tokens / timed_s,
            step_time_s=None if timed_s is None else timed_s / timed,
            data_wait_s=None if data_wait is None else data_wait / steps,
            comm_s=None if comm is None else comm / steps,
            checkpoint_s=checkpoint,
            learning_rate=learning_rate,
            grad_norm=grad_norm,
        )


def number(value: Any) -> float | None:
    """Convert any kind of number to a float; None for other values (a vector, a string)."""
    try:
        return None if value is None else float(value)
    except Exception:  # noqa: BLE001 - anything that the loop's own object raises
        return None


def kept(value: Any) -> Any:
    """The value without its autograd graph, which it would keep alive."""
    try:
        return value.detach()
    except AttributeError:
        return value


def _added(total: Any, value: Any) -> Any:
    """The sum, on the device of a tensor, so that nothing waits for it.

    A value that is not a number adds nothing.
    """
    if type(value) is not float:
        if hasattr(value, "detach"):
            if value.numel() != 1:
                return total
            value = value.detach()
        else:
            value = number(value)
            if value is None:
                return total
    return (0 if total is None else total) + value  # a new tensor: the loop may reuse its own


def _whole(value: Any, otherwise: int) -> int:
    """A step that JSON readers and a 64-bit column can represent."""
    found = value if type(value) is int else number(value)
    if found is None or not -LARGEST <= found <= LARGEST:
        return otherwise
    return int(found)
