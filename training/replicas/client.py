"""A replica's connection to the server of its quorum."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from training.connection import connected, receive, send
from training.replicas.membership import Decision, Lost
from training.replicas.messages import Join, QuorumAddress, Refuse, Vote, decode, encode

CONNECT_S = 30.0


class QuorumEnded(ConnectionError):
    """The server has ended, or has removed this replica, because it did not respond."""


class QuorumClient:
    def __init__(self, address: QuorumAddress, replica: int) -> None:
        """Raises OSError if the server cannot be reached, or is not that of this run."""
        self.host, self.store_port = address.server.host, address.store_port
        self.replica = replica
        self._socket = connected(address.server, timeout_s=CONNECT_S)
        self._socket.settimeout(None)
        self._answers: queue.SimpleQueue[Decision | None] = queue.SimpleQueue()
        self._broken = 0
        """The newest quorum that has lost a member."""
        self.on_lost: Callable[[int], None] = lambda number: None
        """Called with the number of a quorum that has lost a member, on a thread of this client."""
        self._thread = threading.Thread(target=self._read, name="quorum", daemon=True)
        self._thread.start()

    def __enter__(self) -> QuorumClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # `close` alone leaves it to the reader
        self._socket.close()

    def join(self, address: str) -> Decision:
        """Wait for the quorum that this replica is in. `address`: of its `Snapshots`.

        Raises QuorumEnded.
        """
        return self._ask(Join(self.replica, address))

    def vote(
        self,
        number: int,
        step: int,
        *,
        ok: bool,
        final: bool = False,
        result: Mapping[str, Any] | None = None,
    ) -> Decision:
        """Wait for the votes of all members of quorum `number`. Raises QuorumEnded."""
        return self._ask(Vote(number, step, ok, final, result))

    def refuse(self, result: Mapping[str, Any]) -> bool:
        """This replica cannot train. Returns whether that ends the run for all replicas, because
        there is no quorum yet. Raises QuorumEnded.
        """
        return self._ask(Refuse(result)).result is not None

    def is_whole(self, number: int) -> bool:
        """Whether the quorum has lost no member so far."""
        return self._broken < number

    def _ask(self, message: Join | Vote | Refuse) -> Decision:
        try:
            send(self._socket, encode(message))
        except OSError as error:
            raise QuorumEnded(f"the quorum's server at {self.host}: {error}") from error
        answer = self._answers.get()
        if answer is None:
            raise QuorumEnded(
                f"the quorum's server at {self.host} closed the connection: it has ended, or this "
                "replica did not respond in time"
            )
        return answer

    def _read(self) -> None:
        try:
            while True:
                match decode(receive(self._socket)):
                    case Decision() as decision:
                        self._answers.put(decision)
                    case Lost() as lost:
                        self._broken = max(self._broken, lost.number)
                        self.on_lost(lost.number)
        except OSError:
            pass  # the end of the connection, which `_ask` reports
        finally:
            self._answers.put(None)
