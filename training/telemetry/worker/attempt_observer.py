"""What a rank's own process sees of its attempt: a checkpoint being read, its reports.

`attach` is called in that process before the training function. It hangs itself into Ray Train's
context (the callbacks of `ray.train.report`) and, when the attempt goes on from a checkpoint,
around `Checkpoint.to_directory` and `as_directory`. Internals of Ray 2.60: the tests pin them.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

log = logging.getLogger(__name__)

RESTORE_BEGINS = "restore begins"
RESTORE_ENDS = "restore ends"
REPORT_BEGINS = "report begins"
NOTICE = "notice "
"""Before a reason of one word, and a line."""

TELLING_RANKS = 8
"""Only the lowest ranks tell of their reports: they meet in each one."""


class Witness:
    """Tells the aggregator, without waiting for it."""

    def __init__(self, aggregator: Any, run: str, attempt: int, rank: int) -> None:
        self._aggregator, self.run, self._attempt, self._rank = aggregator, run, attempt, rank
        self._reading = 0
        self._is_broken = False

    def tell(self, what: str) -> None:
        if self._is_broken:
            return
        try:
            self._aggregator.note.remote(self.run, self._attempt, self._rank, what, time.time())
        except Exception:
            self._is_broken = True
            log.warning("telemetry: %s could not be sent", what, exc_info=True)

    @contextmanager
    def reads(self) -> Iterator[None]:
        """A checkpoint is read meanwhile; `as_directory` may call `to_directory`."""
        self._reading += 1
        if self._reading == 1:
            self.tell(RESTORE_BEGINS)
        try:
            yield
        finally:
            self._reading -= 1
            if not self._reading:
                self.tell(RESTORE_ENDS)


_witness: Witness | None = None
"""This process's. Ray Train starts a process for each rank of each attempt."""


def notice(reason: str, message: str) -> None:
    """A line for the stream, from this process's training code; nothing without telemetry."""
    if _witness is not None:
        _witness.tell(f"{NOTICE}{reason} {message}")


def run() -> str:
    """The run on the stream that this process is a rank of; '' without telemetry."""
    return "" if _witness is None else _witness.run


def begin(run: str, attempt: int, rank: int, aggregator: Any) -> None:
    """In a process that is no rank of Ray Train's."""
    global _witness
    _witness = Witness(aggregator, run, attempt, rank)


def attach(run: str, attempt: int, rank: int, aggregator: Any) -> None:
    global _witness
    from ray.train import Checkpoint
    from ray.train.v2._internal.execution.context import get_train_context

    context = get_train_context()
    is_wrapped = _witness is not None
    _witness = Witness(aggregator, run, attempt, rank)
    if rank < TELLING_RANKS:
        context.execution_context.train_context_callbacks.append(_reports())
    # All ranks read at about the same time: one tells for all, on one clock.
    if rank == 0 and context.checkpoint is not None and not is_wrapped:
        Checkpoint.to_directory = _read(Checkpoint.to_directory)
        Checkpoint.as_directory = _opened(Checkpoint.as_directory)


def _reports() -> Any:
    from ray.train.v2._internal.execution.callback import TrainContextCallback

    class Reports(TrainContextCallback):  # type: ignore[misc]
        @contextmanager
        def on_report(self) -> Iterator[None]:
            if _witness is not None:
                _witness.tell(REPORT_BEGINS)
            yield

    return Reports()


def _read(read: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(read)
    def told(*args: Any, **kwargs: Any) -> str:
        if _witness is None:
            return read(*args, **kwargs)
        with _witness.reads():
            return read(*args, **kwargs)

    return told


def _opened(
    opened: Callable[..., AbstractContextManager[str]],
) -> Callable[..., AbstractContextManager[str]]:
    @functools.wraps(opened)
    @contextmanager
    def told(*args: Any, **kwargs: Any) -> Iterator[str]:
        if _witness is None:
            with opened(*args, **kwargs) as path:
                yield path
            return
        with _witness.reads(), opened(*args, **kwargs) as path:
            yield path

    return told
