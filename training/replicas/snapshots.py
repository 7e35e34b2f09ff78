"""The state of a replica, sent from its memory to a replica that joins."""

from __future__ import annotations

import hashlib
import socket
import struct
import threading
from types import TracebackType

PUBLISH_S = 120.0
"""How long a request waits for the state of its quorum."""
_REQUEST = struct.Struct("!Q")
_HEAD = struct.Struct("!Q32s")
"""The length of the state, and its SHA-256."""


class HealError(Exception):
    """The state of another replica could not be received."""


class Snapshots:
    """Serve the newest state of this replica, by the number of the quorum that needs it."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server(("", 0))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._published = threading.Condition()
        self._number, self._state = 0, b""
        threading.Thread(target=self._accept, name="snapshots", daemon=True).start()

    def __enter__(self) -> Snapshots:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def publish(self, number: int, state: bytes) -> None:
        with self._published:
            self._number, self._state = number, state
            self._published.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                found, _ = self._listener.accept()
            except OSError:
                return  # stopped
            threading.Thread(
                target=self._serve, args=(found,), name="snapshots", daemon=True
            ).start()

    def _serve(self, found: socket.socket) -> None:
        with found:
            found.settimeout(PUBLISH_S)
            try:
                (number,) = _REQUEST.unpack(_read(found, _REQUEST.size))
                with self._published:
                    self._published.wait_for(lambda: self._number >= number, PUBLISH_S)
                    if self._number != number:
                        return  # the quorum has changed again, and the request with it
                    state = self._state
                found.sendall(_HEAD.pack(len(state), hashlib.sha256(state).digest()))
                found.sendall(state)
            except (OSError, HealError):
                return  # the replica that asked has ended


def fetch(address: str, number: int) -> bytes:
    """The state for quorum `number` from a replica's Snapshots. Raises HealError."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=PUBLISH_S) as found:
            found.sendall(_REQUEST.pack(number))
            length, digest = _HEAD.unpack(_read(found, _HEAD.size))
            state = _read(found, length)
    except OSError as error:
        raise HealError(f"the replica at {address}: {error}") from error
    if hashlib.sha256(state).digest() != digest:
        raise HealError(f"the state from the replica at {address} is damaged")
    return state


def _read(found: socket.socket, length: int) -> bytes:
    state = bytearray(length)
    view, filled = memoryview(state), 0
    while filled < length:
        count = found.recv_into(view[filled:])
        if not count:
            raise HealError("the other replica closed the connection")
        filled += count
    return bytes(state)
