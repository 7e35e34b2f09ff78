"""The way to the aggregator for a rank that is no process of Ray's.

A launcher's agent is an actor and starts ranks as its children. It listens on a Unix socket that
`VARIABLE` names to them, passes on what they fold, and keeps what the driver wants to hear: which
ranks have begun, what they reported, and how they ended. A rank that is killed says nothing, and
its end of the socket closes.
"""

from __future__ import annotations

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
from training.telemetry.wire import Report, Steps, Worker

VARIABLE = "COCKPIT_TELEMETRY_RELAY"
ARRIVE_S = 5.0
"""How long a record may be under way before the next is read; the rank folds meanwhile."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A rank's first word; answered with its Seat."""

    rank: int
    local_rank: int
    pid: int


@dataclass(frozen=True, slots=True)
class Seat:
    run: str
    worker: Worker


@dataclass(frozen=True, slots=True)
class Began:
    """Rank 0's word when all ranks are there; answered with the number of the attempt."""

    workers: tuple[Worker, ...]
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Noted:
    attempt: int
    rank: int
    what: str
    t: float


@dataclass(frozen=True, slots=True)
class Ended:
    rank: int
    why: str
    """'' for well."""


Heard: TypeAlias = Began | Report | Ended


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
        """`seat` says where a rank of this agent is, `sink` makes a Sink for each rank."""
        self._run, self._seat, self._next_attempt = run, seat, next_attempt
        self._sink, self._aggregator = sink, aggregator
        self._folder = Path(tempfile.mkdtemp(prefix="relay-"))  # of this user alone
        self.address = str(self._folder / "socket")
        self._listener = Listener(self.address, "AF_UNIX")
        self._heard: list[tuple[float, Heard]] = []
        self._ranks: list[threading.Thread] = []
        self._seated: dict[int, tuple[int, threading.Thread]] = {}
        """By local rank: who has not said yet how it ended, and the thread that serves it."""
        self._left = threading.Condition()
        """A seat is free; and the lock of what is seated and heard."""
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def take(self) -> list[tuple[float, Heard]]:
        """What was heard since the last time, and when (Unix seconds)."""
        with self._left:
            heard, self._heard = self._heard, []
        return heard

    def close(self) -> None:
        """When all ranks have ended: what they sent arrives first."""
        for rank in self._ranks:
            rank.join(ARRIVE_S)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            rank = threading.Thread(target=self._serve, args=[connection], daemon=True)
            self._ranks.append(rank)
            rank.start()

    @guarded
    def _serve(self, connection: Connection) -> None:
        sink, local_rank = self._sink(), -1
        with connection:
            while True:
                try:
                    said = connection.recv()
                except (EOFError, OSError):
                    break
                match said:
                    case Hello():
                        local_rank = said.local_rank
                        self._follows(said)
                        connection.send(Seat(self._run, self._seat(said)))
                    case Began():
                        attempt = self._next_attempt()
                        self._hear(Began(said.workers, attempt))
                        connection.send(attempt)
                    case Steps():
                        sink.drain(ARRIVE_S)
                        sink.busy()  # it learns whether the one before has arrived
                        sink.send(said)
                    case Noted():
                        self._aggregator.note.remote(
                            self._run, said.attempt, said.rank, said.what, said.t
                        )
                    case Report():
                        self._hear(said)
                    case Ended():
                        self._ends(local_rank, said.why)
        self._ends(local_rank, DIED)
        sink.drain(ARRIVE_S)

    def _follows(self, said: Hello) -> None:
        """Whoever had the seat is dead, since the agent has started another: that is heard before,
        also when its last records take their time.
        """
        with self._left:
            self._left.wait_for(lambda: said.local_rank not in self._seated, ARRIVE_S)
            if before := self._seated.get(said.local_rank):
                self._hear(Ended(before[0], DIED))
            self._seated[said.local_rank] = (said.rank, threading.current_thread())

    def _ends(self, local_rank: int, why: str) -> None:
        """Once for each rank: what it says when another has its seat is no news."""
        with self._left:
            rank, serving = self._seated.get(local_rank, (-1, None))
            if serving is threading.current_thread():
                del self._seated[local_rank]
                self._left.notify_all()
                self._hear(Ended(rank, why))

    def _hear(self, heard: Heard) -> None:
        with self._left:
            self._heard.append((time.time(), heard))


class Line:
    """A rank's end, and the Sink of its records. It waits for nothing but for the two answers."""

    def __init__(self, address: str) -> None:
        self._connection = Client(address, "AF_UNIX")
        self._lock = threading.Lock()
        # A loader's process is no rank: the socket has to close when the rank is killed.
        os.register_at_fork(after_in_child=self.close)

    def ask(self, said: Hello | Began) -> Any:
        """Raises OSError and EOFError when the agent has gone."""
        with self._lock:
            self._connection.send(said)
            return self._connection.recv()

    def say(self, said: Steps | Noted | Report | Ended) -> None:
        """Lost when the agent has stopped reading, or has gone."""
        with self._lock, suppress(OSError):
            if not self._is_full():
                self._connection.send(said)

    def close(self) -> None:
        self._connection.close()

    def busy(self) -> bool:
        with self._lock:
            return self._is_full()

    def send(self, record: Steps) -> None:
        self.say(record)

    def drain(self, timeout_s: float) -> None:
        """What the socket has taken arrives, even when this process ends."""

    def _is_full(self) -> bool:
        if self._connection.closed:
            return False
        return not select.select([], [self._connection], [], 0)[1]
