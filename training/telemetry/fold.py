"""Many steps folded into one record, in the training thread and for next to nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Folded:
    """The steps `first_step` to `step`; the meaning of the rest is `wire.Steps`'."""

    t: float
    step: int
    first_step: int
    steps_total: int
    epoch: float | None
    loss: float | None
    samples_per_s: float | None
    step_time_s: float | None
    data_wait_s: float | None
    comm_s: float | None
    checkpoint_s: float | None
    learning_rate: float | None
    grad_norm: float | None


class Fold:
    """Folds steps until they are taken. `step` and `take` may run on different threads."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
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
        self._timed_samples: float | None = None
        self._data_wait: float | None = None
        self._comm: float | None = None
        self._checkpoint: float | None = None

    def resume(self, step: int) -> None:
        with self._lock:
            self._step = int(step)

    def step(
        self,
        loss: Any = None,
        samples: Any = None,
        epoch: Any = None,
        learning_rate: Any = None,
        grad_norm: Any = None,
        step: int | None = None,
        data_wait_s: float | None = None,
        comm_s: float | None = None,
        checkpoint_s: float | None = None,
    ) -> None:
        now = self._clock()
        with self._lock:
            self._step = self._step + 1 if step is None else int(step)
            self._total += 1
            if self._steps == 0:
                self._first = self._step
            self._steps += 1
            if self._began is None:
                self._began = now  # nothing says when the first step began: it is not timed
            else:
                self._timed_steps += 1
                if samples is not None:
                    self._timed_samples = (self._timed_samples or 0.0) + samples
            self._ended = now
            if loss is not None:
                self._loss = _kept(loss)
            if epoch is not None:
                self._epoch = epoch
            if learning_rate is not None:
                self._learning_rate = _kept(learning_rate)
            if grad_norm is not None:
                self._grad_norm = _kept(grad_norm)
            if data_wait_s is not None:
                self._data_wait = (self._data_wait or 0.0) + data_wait_s
            if comm_s is not None:
                self._comm = (self._comm or 0.0) + comm_s
            if checkpoint_s is not None:
                self._checkpoint = (self._checkpoint or 0.0) + checkpoint_s

    def take(self) -> Folded | None:
        """What was folded since the last take; None when there was no step.

        May wait for the device to read a tensor: not for the training thread.
        """
        with self._lock:
            if self._steps == 0:
                return None
            steps, timed, first = self._steps, self._timed_steps, self._first
            began, ended = self._began, self._ended
            samples, total, step = self._timed_samples, self._total, self._step
            waits = self._data_wait, self._comm, self._checkpoint
            newest = self._loss, self._learning_rate, self._grad_norm, self._epoch
            self._began = ended
            self._clear()
        elapsed = ended - began if began is not None else 0.0
        timed_s = elapsed if timed and elapsed > 0 else None
        data_wait, comm, checkpoint = (number(value) for value in waits)
        loss, learning_rate, grad_norm, epoch = (number(value) for value in newest)
        return Folded(
            t=self._wall() - (self._clock() - ended),
            step=step,
            first_step=first,
            steps_total=total,
            epoch=epoch,
            loss=loss,
            samples_per_s=None if timed_s is None or samples is None else float(samples) / timed_s,
            step_time_s=None if timed_s is None else timed_s / timed,
            data_wait_s=None if data_wait is None else data_wait / steps,
            comm_s=None if comm is None else comm / steps,
            checkpoint_s=checkpoint,
            learning_rate=learning_rate,
            grad_norm=grad_norm,
        )


def number(value: Any) -> float | None:
    """A float of whatever a loop calls a number; None for what is not one (a vector, a word)."""
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, RuntimeError):
        return None  # torch says RuntimeError for a tensor of many elements


def _kept(value: Any) -> Any:
    """The value without its autograd graph, which it would keep alive."""
    if type(value) is float:
        return value
    detach = getattr(value, "detach", None)
    return value if detach is None else detach()
