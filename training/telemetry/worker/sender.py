"""A rank's route to the aggregator: one record in flight, later ones folded or kept."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from training.telemetry.wire import Hang, Steps

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where a rank's records go."""

    def busy(self) -> bool:
        """Whether the last record is still in flight."""
        ...

    def send(self, record: Steps) -> None:
        """Returns at once."""
        ...

    def send_hang(self, record: Hang) -> None:
        """Returns at once, and is called on another thread than the rest."""
        ...

    def drain(self, timeout_s: float) -> None:
        """Wait until the last record has arrived."""
        ...


class ActorSink:
    """Send to the aggregator actor. A record that failed to arrive is sent with the next."""

    def __init__(self, run: str, job: str, aggregator: Any) -> None:
        self._run, self._job, self._aggregator = run, job, aggregator
        self._under_way: Any = None
        self._unsaid: list[Steps] = []

    def busy(self) -> bool:
        if self._under_way is None:
            return False
        import ray

        done, _ = ray.wait([self._under_way], timeout=0)
        if not done:
            return True
        try:
            ray.get(self._under_way)
            self._unsaid.clear()
        except ray.exceptions.RayError as error:
            # It or its node died; it is restarted, or the controller creates another.
            log.info("telemetry: the aggregator does not answer (%s)", error)
            self._find()
        self._under_way = None
        return False

    def send(self, record: Steps) -> None:
        self._unsaid = [*self._unsaid, record][-60:]
        self._under_way = self._aggregator.push.remote(self._run, tuple(self._unsaid))

    def send_hang(self, record: Hang) -> None:
        """Not sent again if it is lost: while a rank hangs, another one follows."""
        self._aggregator.hang.remote(record)

    def drain(self, timeout_s: float) -> None:
        import ray

        if self._under_way is not None:
            ray.wait([self._under_way], timeout=timeout_s)

    def _find(self) -> None:
        from training.telemetry.head.aggregator import find

        self._aggregator = find(self._job) or self._aggregator
