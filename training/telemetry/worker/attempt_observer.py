"""Observe an attempt in a rank's own process: the read of a checkpoint, and reports.

`attach` is called in that process before the training function. It adds callbacks to Ray Train's
context (for `ray.train.report`) and, if the attempt resumes from a checkpoint, wraps
`Checkpoint.to_directory` and `as_directory`. Internals of Ray 2.60: the tests pin them.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from training.telemetry.wire import Report

log = logging.getLogger(__name__)

RESTORE_BEGINS = "restore begins"
RESTORE_ENDS = "restore ends"
REPORT_BEGINS = "report begins"
NOTICE = "notice "
"""The prefix of a reason and a message."""

REPORTING_RANKS = 8
"""Only the lowest ranks send their reports: all ranks synchronise in each one."""


class AttemptObserver:
    """Send phases of an attempt to the aggregator, without waiting for it."""

    def __init__(self, aggregator: Any, run: str, attempt: int, rank: int) -> None:
        self._aggregator, self.run, self.attempt, self._rank = aggregator, run, attempt, rank
        self._reading = 0
        self._is_broken = False
        self.reports = 0

    def report_begins(self) -> None:
        self.reports += 1
        if self._rank < REPORTING_RANKS:
            self.emit(REPORT_BEGINS)

    def emit(self, what: str) -> None:
        if self._is_broken:
            return
        try:
            self._aggregator.note.remote(self.run, self.attempt, self._rank, what, time.time())
        except Exception:
            self._is_broken = True
            log.warning("telemetry: %s could not be sent", what, exc_info=True)

    def reported(
        self, metrics: Mapping[str, float], checkpoint: str, size_bytes: int | None
    ) -> None:
        if self._is_broken:
            return
        report = Report(
            run=self.run,
            attempt=self.attempt,
            metrics=dict(metrics),
            checkpoint=checkpoint,
            checkpoint_bytes=size_bytes,
        )
        try:
            self._aggregator.write.remote(time.time(), report)
        except Exception:
            self._is_broken = True
            log.warning("telemetry: a report could not be sent", exc_info=True)

    @contextmanager
    def reads(self) -> Iterator[None]:
        """Report that a checkpoint is read; `as_directory` may call `to_directory`."""
        self._reading += 1
        if self._reading == 1:
            self.emit(RESTORE_BEGINS)
        try:
            yield
        finally:
            self._reading -= 1
            if not self._reading:
                self.emit(RESTORE_ENDS)


_observer: AttemptObserver | None = None
"""The observer of this process. Ray Train starts a process for each rank of each attempt."""


def notice(reason: str, message: str) -> None:
    """Write a line to the stream from this process; without telemetry, do nothing."""
    if _observer is not None:
        _observer.emit(f"{NOTICE}{reason} {message}")


def reads() -> AbstractContextManager[None]:
    """Report that a checkpoint is read that Ray Train does not know; call it on rank 0."""
    return nullcontext() if _observer is None else _observer.reads()


def reported(metrics: Mapping[str, float], checkpoint: str, size_bytes: int | None = None) -> None:
    """Write a report to the stream from this process, for a run that does not report to Ray Train.

    `checkpoint`: its path, or ''.
    """
    if _observer is not None:
        _observer.reports += 1
        _observer.reported(metrics, checkpoint, size_bytes)


def reports() -> int:
    """Return how many reports this process has begun."""
    return 0 if _observer is None else _observer.reports


def run() -> str:
    """The id on the stream of this rank's run; '' without telemetry."""
    return "" if _observer is None else _observer.run


def attempt() -> int:
    """The number of this attempt of the run, from 1; 1 without telemetry."""
    return 1 if _observer is None else _observer.attempt


def begin(run: str, attempt: int, rank: int, aggregator: Any) -> None:
    """For a process that is not a rank of Ray Train."""
    global _observer
    _observer = AttemptObserver(aggregator, run, attempt, rank)


def attach(run: str, attempt: int, rank: int, aggregator: Any) -> None:
    global _observer
    from ray.train import Checkpoint
    from ray.train.v2._internal.execution.context import get_train_context

    context = get_train_context()
    is_wrapped = _observer is not None
    _observer = AttemptObserver(aggregator, run, attempt, rank)
    context.execution_context.train_context_callbacks.append(_reports())
    # All ranks read at about the same time: one reports for all, on one clock.
    if rank == 0 and context.checkpoint is not None and not is_wrapped:
        Checkpoint.to_directory = _read(Checkpoint.to_directory)
        Checkpoint.as_directory = _opened(Checkpoint.as_directory)


def _reports() -> Any:
    from ray.train.v2._internal.execution.callback import TrainContextCallback

    class Reports(TrainContextCallback):  # type: ignore[misc]
        @contextmanager
        def on_report(self) -> Iterator[None]:
            if _observer is not None:
                _observer.report_begins()
            yield

    return Reports()


def _read(read: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(read)
    def observed(*args: Any, **kwargs: Any) -> str:
        if _observer is None:
            return read(*args, **kwargs)
        with _observer.reads():
            return read(*args, **kwargs)

    return observed


def _opened(
    opened: Callable[..., AbstractContextManager[str]],
) -> Callable[..., AbstractContextManager[str]]:
    @functools.wraps(opened)
    @contextmanager
    def observed(*args: Any, **kwargs: Any) -> Iterator[str]:
        if _observer is None:
            with opened(*args, **kwargs) as path:
                yield path
            return
        with _observer.reads(), opened(*args, **kwargs) as path:
            yield path

    return observed
