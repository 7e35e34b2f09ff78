"""Read the size of a checkpoint from its storage without blocking the controller."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from training.telemetry.settings import SIZE_TIMEOUT_S
from training.telemetry.wire import Report

log = logging.getLogger(__name__)


def size_bytes(checkpoint: Any) -> int:
    """The size of a `ray.train.Checkpoint` of all ranks. Lists the storage: may wait."""
    import pyarrow.fs as fs  # type: ignore[import-untyped]

    selector = fs.FileSelector(checkpoint.path, recursive=True)
    return sum(item.size or 0 for item in checkpoint.filesystem.get_file_info(selector))


class Sizes:
    """Forward reports, in order, each with its checkpoint's size, or without after `timeout_s`."""

    def __init__(
        self,
        send: Callable[[float, Report], None],
        measure: Callable[[Any], int] = size_bytes,
        timeout_s: float = SIZE_TIMEOUT_S,
    ) -> None:
        self._send, self._measure, self._timeout_s = send, measure, timeout_s
        self._waiting: queue.SimpleQueue[tuple[float, Report, Any]] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._lock = threading.Lock()
        self._pending = 0
        self._thread: threading.Thread | None = None

    def take(self, t: float, report: Report, checkpoint: Any | None) -> None:
        """Returns at once."""
        with self._lock:
            if checkpoint is None and not self._pending:
                self._send(t, report)
                return
            self._pending += 1
            self._idle.clear()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sizes", daemon=True)
                self._thread.start()
        self._waiting.put((t, report, checkpoint))

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything was sent, at most `timeout_s`; returns False if it was not."""
        return self._idle.wait(timeout_s)

    def _run(self) -> None:
        while True:
            t, report, checkpoint = self._waiting.get()
            try:
                size = None if checkpoint is None else self._size(checkpoint)
                self._send(t, replace(report, checkpoint_bytes=size))
            except Exception:
                log.warning("telemetry: a report could not be sent", exc_info=True)
            with self._lock:
                self._pending -= 1
                if not self._pending:
                    self._idle.set()

    def _size(self, checkpoint: Any) -> int | None:
        """The thread of a storage that does not respond is abandoned: nothing can end it."""
        found: list[int] = []

        def measure() -> None:
            try:
                found.append(self._measure(checkpoint))
            except Exception as error:  # noqa: BLE001 - a storage may raise anything
                log.info("telemetry: no size of %s (%s)", checkpoint, error)

        thread = threading.Thread(target=measure, name="size", daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        return found[0] if found else None
