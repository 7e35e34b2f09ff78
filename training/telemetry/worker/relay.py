"""The route to the aggregator for a rank that is not a Ray process.

A launcher's agent is an actor and starts ranks as its children. It listens on a Unix socket whose
path they get in `VARIABLE`, forwards their aggregated steps, and keeps the events for the driver:
which ranks have started, what they reported, and how they ended. A rank that is killed sends
nothing, and its end of the socket closes.
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any, TypeAlias

from training.telemetry.failsafe import guarded
from training.telemetry.ray_train.end_reason import DIED
from training.telemetry.wire import Hang, Report, Steps, Worker

log = logging.getLogger(__name__)

VARIABLE = "COCKPIT_TELEMETRY_RELAY"
ARRIVE_S = 5.0
"""Timeout for sending a record before the next is read; the rank aggregates during that time."""
FULL_S = 1.0
"""After a connection could not be accepted: too many open files, or threads."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a rank; the answer is its RankAssignment."""

    rank: int
    local_rank: int
    pid: int


@dataclass(frozen=True, slots=True)
class RankAssignment:
    run: str
    worker: Worker


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """From rank 0 when all ranks have started; the answer is the attempt's number."""

    workers: tuple[Worker, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class PhaseNote:
    attempt: int
    rank: int
    what: str
    t: float


@dataclass(frozen=True, slots=True)
class Ended:
    rank: int
    why: str
    """'' for success."""
    pid: int = 0
    """Of its process, added by the agent: the end may arrive after the next attempt has started."""


RankEvent: TypeAlias = AttemptStarted | Report | Ended


class Relay:
    """The agent's end."""

    def __init__(
        self,
        run: str,
        seat: Callable[[Hello], Worker],
        next_attempt: Callable[[], int],
        sink: Callable[[], Any],
        aggregator: Any,
    ) -> None:
        """`seat` returns the node of a rank of this agent, `sink` makes a Sink for each rank."""
        self._run, self._seat, self._next_attempt = run, seat, next_attempt
        self._sink, self._aggregator = sink, aggregator
        self._folder = Path(tempfile.mkdtemp(prefix="relay-"))  # accessible for this user only
        self.address = str(self._folder / "socket")
        self._listener = Listener(self.address, "AF_UNIX")
        self._events: list[tuple[float, RankEvent]] = []
        self._is_closed = threading.Event()
        self._ranks: list[threading.Thread] = []
        self._seated: dict[int, tuple[Hello, threading.Thread]] = {}
        """By local rank: the rank that has not ended yet, and the thread that serves it."""
        self._left = threading.Condition()
        """Notified when a rank has ended; also the lock of `_seated` and `_events`."""
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def take(self) -> list[tuple[float, RankEvent]]:
        """Return the events since the last call, with their times (Unix seconds)."""
        with self._left:
            events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Call when all ranks have ended: the data that they sent arrives first."""
        for rank in self._ranks:
            rank.join(ARRIVE_S)
        self._is_closed.set()
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        """Until it is closed: a rank that is not accepted waits for its seat forever."""
        while not self._is_closed.is_set():
            try:
                self._start(self._listener.accept())
            except (OSError, RuntimeError) as error:
                if not self._is_closed.is_set():
                    log.warning("telemetry: a rank was not accepted: %s", error)
                self._is_closed.wait(FULL_S)

    def _start(self, connection: Connection) -> None:
        """Raises RuntimeError if there can be no more threads: the rank sees it closed."""
        rank = threading.Thread(target=self._serve, args=[connection], daemon=True)
        try:
            rank.start()
        except RuntimeError:
            connection.close()
            raise
        self._ranks.append(rank)

    @guarded
    def _serve(self, connection: Connection) -> None:
        sink, local_rank = self._sink(), -1
        with connection:
            while True:
                try:
                    message = connection.recv()
                except (EOFError, OSError):
                    break
                match message:
                    case Hello():
                        local_rank = message.local_rank
                        self._follows(message)
                        _answer(connection, RankAssignment(self._run, self._seat(message)))
                    case AttemptStarted():
                        attempt = self._next_attempt()
                        self._record_event(AttemptStarted(message.workers, attempt))
                        _answer(connection, attempt)
                    case Steps():
                        sink.drain(ARRIVE_S)
                        sink.busy()  # it learns whether the previous one has arrived
                        sink.send(message)
                    case Hang():
                        sink.send_hang(message)
                    case PhaseNote():
                        self._aggregator.note.remote(
                            self._run, message.attempt, message.rank, message.what, message.t
                        )
                    case Report():
                        self._record_event(message)
                    case Ended():
                        self._ends(local_rank, message.why)
        self._ends(local_rank, DIED)
        sink.drain(ARRIVE_S)

    def _follows(self, message: Hello) -> None:
        """Record the end of the previous process: the agent has started another in its place."""
        with self._left:
            self._left.wait_for(lambda: message.local_rank not in self._seated, ARRIVE_S)
            if before := self._seated.get(message.local_rank):
                self._record_event(Ended(before[0].rank, DIED, before[0].pid))
            self._seated[message.local_rank] = (message, threading.current_thread())

    def _ends(self, local_rank: int, why: str) -> None:
        """Record the end once for each rank, and not after another process has taken its place."""
        with self._left:
            seated, serving = self._seated.get(local_rank, (None, None))
            if seated is not None and serving is threading.current_thread():
                del self._seated[local_rank]
                self._left.notify_all()
                self._record_event(Ended(seated.rank, why, seated.pid))

    def _record_event(self, event: RankEvent) -> None:
        with self._left:
            self._events.append((time.time(), event))


def _answer(connection: Connection, answer: RankAssignment | int) -> None:
    """A rank that has just died does not read it; the next message is that it ended."""
    with suppress(OSError):
        connection.send(answer)


class RelayClient:
    """The rank's end, and the Sink of its records. It waits only for the two answers."""

    def __init__(self, address: str) -> None:
        self._connection = Client(address, "AF_UNIX")
        self._lock = threading.Lock()
        # A loader's process is not a rank: the socket must close when the rank is killed.
        os.register_at_fork(after_in_child=self.close)

    def request(self, message: Hello | AttemptStarted) -> Any:
        """Raise OSError or EOFError when the agent has ended."""
        with self._lock:
            self._connection.send(message)
            return self._connection.recv()

    def send_message(self, message: Steps | PhaseNote | Report | Ended | Hang) -> None:
        """Drop the message when the agent has stopped reading, or has ended."""
        with self._lock, suppress(OSError):
            if not self._is_full():
                self._connection.send(message)

    def close(self) -> None:
        self._connection.close()

    def busy(self) -> bool:
        with self._lock:
            return self._is_full()

    def send(self, record: Steps) -> None:
        self.send_message(record)

    def send_hang(self, record: Hang) -> None:
        self.send_message(record)

    def drain(self, timeout_s: float) -> None:
        """Data that the socket has accepted arrives, even when this process ends."""

    def _is_full(self) -> bool:
        if self._connection.closed:
            return False
        return not select.select([], [self._connection], [], 0)[1]
