"""Connections between processes of a run on several hosts: JSON messages, and bytes after them.

Both ends of a connection prove that they know the run's token, without sending it. What follows is
not encrypted, like Ray's own traffic without TLS.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from typing import Any

log = logging.getLogger(__name__)

ANSWER_S = 5.0
"""How long the other end of a connection may take for an answer that needs no work."""
ADMIT_S = 30.0
"""How long a caller may take for its proof: its host may be busy."""
MESSAGE_BYTES = 1 << 20
"""The longest message, without the bytes after it."""
TOKEN_BYTES = 32
_LENGTH_BYTES = 4
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_PART_BYTES = 1 << 26
_BACKLOG = 128
_FULL_S = 1.0
"""After a connection could not be accepted: too many open files, or threads."""
LOST_S = 30
"""How long the other end's host may be unreachable. Without probes, an end that only receives would
wait forever for a host that has lost its power."""


class NoAnswer(ConnectionError):
    """The other end cannot be reached, or does not answer as it should."""


@dataclass(frozen=True, slots=True)
class Address:
    """Of a `Listener`."""

    host: str
    port: int
    token: bytes = field(repr=False)
    local: str = ""
    """The name of its socket for processes of the host, in Linux's abstract namespace."""
    node: str = ""
    """An id of its node."""


def new_token() -> bytes:
    """A secret that the processes of one run share."""
    return secrets.token_bytes(TOKEN_BYTES)


class Listener:
    """Accepts connections of callers that have the token, each on a thread of its own."""

    def __init__(
        self,
        listening: socket.socket,
        token: bytes,
        serve: Callable[[socket.socket], None],
        name: str,
    ) -> None:
        """`serve` is called for each caller that is admitted, and may raise OSError, or what a
        message of another form leads to: KeyError, TypeError, ValueError. Then the connection is
        closed. `name`: of the threads.
        """
        self._listening, self._token = listening, token
        self._serve, self._name = serve, name
        self._is_closed = threading.Event()
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        """Connections that were admitted stay open."""
        self._is_closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # `close` alone does not end `accept`
        self._listening.close()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                self._start(self._listening.accept()[0])
            except (OSError, RuntimeError) as error:
                if not self._is_closed.is_set():
                    log.warning("%s: a connection was not accepted: %s", self._name, error)
                self._is_closed.wait(_FULL_S)

    def _start(self, link: socket.socket) -> None:
        """Raises RuntimeError if there can be no more threads: the caller sees it closed."""
        try:
            threading.Thread(target=self._admit, args=(link,), name=self._name, daemon=True).start()
        except RuntimeError:
            link.close()
            raise

    def _admit(self, link: socket.socket) -> None:
        with link:
            try:
                link.settimeout(ADMIT_S)
                if link.family != socket.AF_UNIX:
                    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    keep_alive(link, LOST_S)
                if _admits(link, self._token):
                    link.settimeout(ANSWER_S)
                    self._serve(link)
            except (OSError, KeyError, TypeError, ValueError) as error:
                # The caller has ended, or it is not one of ours; it sees a closed connection.
                log.debug("%s: a connection ended: %s", self._name, error)


def on_host(host: str) -> socket.socket:
    """A socket for a `Listener`, on any port of this host's address."""
    return socket.create_server((host, 0), backlog=_BACKLOG)


def on_node(name: str) -> socket.socket:
    """A socket for a `Listener` that only processes of this node reach."""
    local = socket.socket(socket.AF_UNIX)
    local.bind(f"\0{name}")
    local.listen(_BACKLOG)
    return local


def connected(
    address: Address,
    *,
    local: bool = False,
    timeout_s: float = ANSWER_S,
    answer_s: float | None = None,
) -> socket.socket:
    """A connection on which both ends have proved themselves. Raises OSError.

    `answer_s`: how long the other end may take once its host has accepted the connection;
    `timeout_s` by default.
    """
    if local:
        link = socket.socket(socket.AF_UNIX)
    else:
        link = socket.create_connection((address.host, address.port), timeout=timeout_s)
    try:
        link.settimeout(answer_s or timeout_s)
        if local:
            link.connect(f"\0{address.local}")
        else:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(link, LOST_S)
        _introduce(link, address.token)
    except BaseException:
        link.close()
        raise
    return link


def keep_alive(link: socket.socket, lost_s: int) -> None:
    """Let an idle TCP connection fail when the other host answers no probe for about `lost_s`."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 2 * lost_s // 5),
        (socket.TCP_KEEPINTVL, lost_s // 5),
        (socket.TCP_KEEPCNT, 3),
    ):
        link.setsockopt(socket.IPPROTO_TCP, option, value)


def _introduce(link: socket.socket, token: bytes) -> None:
    asked = secrets.token_bytes(_NONCE_BYTES)
    theirs = bytes(received(link, _NONCE_BYTES))
    link.sendall(_proof(token, b"caller", theirs) + asked)
    if not hmac.compare_digest(
        bytes(received(link, _PROOF_BYTES)), _proof(token, b"listener", asked)
    ):
        raise NoAnswer("it does not have the token of this run")


def _admits(link: socket.socket, token: bytes) -> bool:
    """The listener's part of the introduction: whether the caller has the run's token."""
    asked = secrets.token_bytes(_NONCE_BYTES)
    link.sendall(asked)
    answer = bytes(received(link, _PROOF_BYTES + _NONCE_BYTES))
    if not hmac.compare_digest(answer[:_PROOF_BYTES], _proof(token, b"caller", asked)):
        return False
    link.sendall(_proof(token, b"listener", answer[_PROOF_BYTES:]))
    return True


def send(link: socket.socket, message: dict[str, Any]) -> None:
    link.sendall(_framed(message))


def send_with_descriptor(link: socket.socket, message: dict[str, Any], descriptor: int) -> None:
    """For a socket of the node: the descriptor arrives with the message."""
    content = _framed(message)
    sent = socket.send_fds(link, [content], [descriptor])
    link.sendall(content[sent:])


def send_file(link: socket.socket, message: dict[str, Any], file: FileIO, size_bytes: int) -> None:
    """A message, and the first bytes of a file after it, which are not copied to this process."""
    send(link, message | {"size_bytes": size_bytes})
    if link.sendfile(file, count=size_bytes) != size_bytes:
        raise NoAnswer("the file ended early")


def receive(link: socket.socket) -> dict[str, Any]:
    """Raises NoAnswer if the other end closed the connection or sent something else."""
    return _decoded(bytes(received(link, _length(received(link, _LENGTH_BYTES)))))


def receive_with_descriptor(link: socket.socket) -> tuple[dict[str, Any], int | None]:
    first, descriptors, _, _ = socket.recv_fds(link, _LENGTH_BYTES, 1)
    if not first:
        raise NoAnswer("it closed the connection")
    rest = bytes(received(link, _LENGTH_BYTES - len(first)))
    content = received(link, _length(bytearray(first + rest)))
    return _decoded(bytes(content)), descriptors[0] if descriptors else None


def receive_into(link: socket.socket, memory: memoryview) -> None:
    """Fill the memory with the bytes that follow a message."""
    at = 0
    while at < len(memory):
        got = link.recv_into(memory[at : at + _PART_BYTES])
        if not got:
            raise NoAnswer("it closed the connection")
        at += got


def received(link: socket.socket, size_bytes: int) -> bytearray:
    """The bytes that follow a message."""
    content = bytearray(size_bytes)
    receive_into(link, memoryview(content))
    return content


def _framed(message: dict[str, Any]) -> bytes:
    content = json.dumps(message).encode()
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


def _length(content: bytearray) -> int:
    length = int.from_bytes(content, "big")
    if length > MESSAGE_BYTES:
        raise NoAnswer(f"a message of {length:,} bytes")
    return length


def _decoded(content: bytes) -> dict[str, Any]:
    try:
        message = json.loads(content)
    except ValueError:
        raise NoAnswer("a message that is not JSON") from None
    if not isinstance(message, dict):
        raise NoAnswer("a message that is not an object")
    return message


def _proof(token: bytes, who: bytes, asked: bytes) -> bytes:
    return hmac.digest(token, who + asked, "sha256")
