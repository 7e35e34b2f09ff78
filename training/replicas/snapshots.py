"""The state of a replica, sent from its memory to a replica that joins."""

from __future__ import annotations

import hashlib
import socket
import threading
from types import TracebackType

from training.connection import (
    Address,
    Listener,
    connected,
    keep_alive,
    on_host,
    receive,
    received,
    send,
)

CONNECT_S = 30.0
LOST_S = 5
"""After that the host of the replica that has the state is lost: the others wait for this one."""
PUBLISH_S = 120.0
"""How long a request waits for the state of its quorum."""
PART_BYTES = 1 << 26


class HealError(Exception):
    """The state of another replica could not be received."""


class Snapshots:
    """Serve the newest state of this replica, by the number of the quorum that needs it."""

    def __init__(self, host: str, token: bytes) -> None:
        self._published = threading.Condition()
        self._number, self._state = 0, b""
        listening = on_host(host)
        self.address = f"{host}:{listening.getsockname()[1]}"
        self._listener = Listener(listening, token, self._serve, "snapshots")

    def __enter__(self) -> Snapshots:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def publish(self, number: int, state: bytes) -> None:
        with self._published:
            self._number, self._state = number, state
            self._published.notify_all()

    def _serve(self, link: socket.socket) -> None:
        link.settimeout(PUBLISH_S)
        number = int(receive(link)["quorum"])
        with self._published:
            self._published.wait_for(lambda: self._number >= number, PUBLISH_S)
            if self._number != number:
                return  # the quorum has changed again, and the request with it
            state = self._state
        send(link, {"size_bytes": len(state), "sha256": hashlib.sha256(state).hexdigest()})
        for at in range(0, len(state), PART_BYTES):  # the timeout is that of one call
            link.sendall(memoryview(state)[at : at + PART_BYTES])


def fetch(address: str, token: bytes, number: int) -> bytes:
    """The state for quorum `number` from a replica's Snapshots. Raises HealError."""
    host, _, port = address.rpartition(":")
    try:
        with connected(Address(host, int(port), token), timeout_s=CONNECT_S) as link:
            link.settimeout(PUBLISH_S)
            keep_alive(link, LOST_S)
            send(link, {"quorum": number})
            head = receive(link)
            state = received(link, int(head["size_bytes"]))
    except OSError as error:
        raise HealError(f"the replica at {address}: {error}") from error
    if hashlib.sha256(state).hexdigest() != head["sha256"]:
        raise HealError(f"the state from the replica at {address} is damaged")
    return bytes(state)
