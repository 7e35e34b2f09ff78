"""A rank's route to the aggregator: one call in flight, later records are folded or kept."""

from __future__ import annotations

import logging
import time
from typing import Any, Protocol

from training.telemetry.wire import Hang, Steps

log = logging.getLogger(__name__)

_KEPT = 60
"""The number of records that are kept for an unavailable aggregator; older ones are dropped."""


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
    """Send to the aggregator actor, which has written the records of a call when it returns.

    The records of a call that failed are sent again, until they are written.
    """

    def __init__(self, run: str, job: str, aggregator: Any) -> None:
        self._run, self._job, self._aggregator = run, job, aggregator
        self._call: Any = None
        """In flight."""
        self._sent: tuple[Steps, ...] = ()
        """The records of the call."""
        self._later: tuple[Steps, ...] = ()
        """Records since the call."""

    def busy(self) -> bool:
        if self._call is None:
            return False
        import ray

        done, _ = ray.wait([self._call], timeout=0)
        if not done:
            return True
        try:
            ray.get(self._call)
            self._sent = ()
        except ray.exceptions.RayTaskError as error:
            # It would fail again, and block all later records.
            log.info("telemetry: the aggregator could not take a record (%s)", error)
            self._sent = ()
        except ray.exceptions.RayError as error:
            # It or its node died; it is restarted, or the controller creates another.
            log.info("telemetry: the aggregator does not answer (%s)", error)
            self._find()
        self._call = None
        self._push()
        return self._call is not None

    def send(self, record: Steps) -> None:
        self._later = (*self._later, record)[-_KEPT:]
        self._push()

    def _push(self) -> None:
        if self._call is None and (records := (*self._sent, *self._later)[-_KEPT:]):
            self._sent, self._later = records, ()
            self._call = self._aggregator.push.remote(self._run, records)

    def send_hang(self, record: Hang) -> None:
        """Not sent again if it is lost: while a rank hangs, another one follows."""
        self._aggregator.hang.remote(record)

    def drain(self, timeout_s: float) -> None:
        """At most two calls: without an aggregator each fails at once."""
        deadline = time.monotonic() + timeout_s
        for _ in range(2):
            if self._call is None:
                return
            import ray

            ray.wait([self._call], timeout=max(0.0, deadline - time.monotonic()))
            self.busy()

    def _find(self) -> None:
        from training.telemetry.head.aggregator import find

        self._aggregator = find(self._job) or self._aggregator
