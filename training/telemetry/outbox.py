"""The controller's way to the aggregator: in order, without waiting, again when it was lost."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from training.telemetry.aggregator import connect
from training.telemetry.wire import Body

log = logging.getLogger(__name__)

_KEPT = 1000
"""Records that are kept for an aggregator that does not answer; older ones are dropped."""


class ActorOutbox:
    def __init__(self, job: str, aggregator: Any | None = None) -> None:
        self._job = job
        self._aggregator = aggregator if aggregator is not None else connect(job)
        self._under_way: deque[tuple[Any, float, Body]] = deque(maxlen=_KEPT)

    @property
    def aggregator(self) -> Any:
        return self._aggregator

    def send(self, t: float, body: Body) -> None:
        self._reap()
        self._under_way.append((self._aggregator.write.remote(t, body), t, body))

    def drain(self, timeout_s: float) -> None:
        """Wait until all has arrived, at most `timeout_s`."""
        import ray

        references = [reference for reference, _, _ in self._under_way]
        if references:
            ray.wait(references, num_returns=len(references), timeout=timeout_s)
        self._reap()

    def _reap(self) -> None:
        """Forget what has arrived. When something was lost, send it and all after it again."""
        import ray

        while self._under_way:
            reference = self._under_way[0][0]
            done, _ = ray.wait([reference], timeout=0)
            if not done:
                return
            try:
                ray.get(reference)
            except ray.exceptions.RayActorError as error:
                log.info("telemetry: the aggregator is gone (%s); connecting again", error)
                self._aggregator = connect(self._job)
                again = [(t, body) for _, t, body in self._under_way]
                self._under_way.clear()
                for t, body in again:
                    self._under_way.append((self._aggregator.write.remote(t, body), t, body))
                return
            self._under_way.popleft()
