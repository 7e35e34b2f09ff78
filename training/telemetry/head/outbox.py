"""The controller's route to the aggregator: in order, without waiting, and again after a loss."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Any

from training.telemetry.head.aggregator import connect
from training.telemetry.wire import Body

log = logging.getLogger(__name__)

_KEPT = 1000
"""The number of records that are kept for an unavailable aggregator; older ones are dropped."""


class ActorOutbox:
    def __init__(self, job: str, aggregator: Any | None = None) -> None:
        self._job = job
        self._aggregator = aggregator if aggregator is not None else connect(job)
        self._lock = threading.RLock()
        """A checkpoint's size is read on another thread, which then sends its report."""
        self._under_way: deque[tuple[Any, float, Body]] = deque(maxlen=_KEPT)

    @property
    def aggregator(self) -> Any:
        return self._aggregator

    def send(self, t: float, body: Body) -> None:
        with self._lock:
            self._reap()
            self._under_way.append((self._aggregator.write.remote(t, body), t, body))

    def drain(self, timeout_s: float) -> None:
        """Wait until everything has arrived, at most `timeout_s`."""
        import ray

        deadline = time.monotonic() + timeout_s
        while self._under_way and (left_s := deadline - time.monotonic()) > 0:
            with self._lock:
                references = [reference for reference, _, _ in self._under_way]
            ray.wait(references, num_returns=len(references), timeout=left_s)
            with self._lock:
                self._reap()

    def _reap(self) -> None:
        """Drop records that have arrived, and send those again that were lost with the aggregator.

        Only those: records in flight wait for the aggregator's restart and arrive. A record that
        was written just before the death arrives twice, which readers of the stream allow for.
        """
        import ray

        if not self._under_way:
            return
        references = [reference for reference, _, _ in self._under_way]
        done = set(ray.wait(references, num_returns=len(references), timeout=0)[0])
        lost: list[tuple[float, Body]] = []
        for reference, t, body in list(self._under_way):
            if reference not in done:
                continue
            self._under_way.remove((reference, t, body))
            try:
                ray.get(reference)
            except ray.exceptions.RayActorError as error:
                log.info("telemetry: the aggregator does not answer (%s)", error)
                lost.append((t, body))
        if lost:
            self._aggregator = connect(self._job)
        for t, body in lost:
            self._under_way.append((self._aggregator.write.remote(t, body), t, body))
