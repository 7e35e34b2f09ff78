"""Messages between ranks and holders: JSON, with the bytes of a shard after it if it has them.

Both ends of a connection prove that they know the run's token, without sending it. What follows is
not encrypted, like Ray's own traffic without TLS.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from typing import Any

ANSWER_S = 5.0
"""How long the other end of a connection may take for an answer that needs no work."""
HEAD_BYTES = 1 << 20
"""The longest message, without the shard after it."""
_LENGTH_BYTES = 4
_NONCE_BYTES = 32
_PART_BYTES = 1 << 26


class NoAnswer(ConnectionError):
    """A holder that cannot be reached, or does not answer as it should."""


@dataclass(frozen=True, slots=True)
class Address:
    """A holder of a node."""

    node: str
    host: str
    port: int
    local: str
    """The name of its socket for processes of the node, in Linux's abstract namespace."""
    token: bytes = field(repr=False)


@contextmanager
def connected(
    address: Address, *, local: bool = False, timeout_s: float = ANSWER_S
) -> Iterator[socket.socket]:
    """A connection on which both ends have proved themselves. Raises OSError."""
    if local:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(timeout_s)
    else:
        link = socket.create_connection((address.host, address.port), timeout=timeout_s)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with link:
        if local:
            link.connect(f"\0{address.local}")
        link.settimeout(timeout_s)
        _introduce(link, address.token)
        yield link


def _introduce(link: socket.socket, token: bytes) -> None:
    asked = secrets.token_bytes(_NONCE_BYTES)
    theirs = bytes(_received(link, _NONCE_BYTES))
    link.sendall(_proof(token, b"caller", theirs) + asked)
    if not hmac.compare_digest(bytes(_received(link, 32)), _proof(token, b"holder", asked)):
        raise NoAnswer("it does not have the token of this run")


def admits(link: socket.socket, token: bytes) -> bool:
    """The holder's part of the introduction: whether the caller has the run's token."""
    asked = secrets.token_bytes(_NONCE_BYTES)
    link.sendall(asked)
    answer = bytes(_received(link, 32 + _NONCE_BYTES))
    if not hmac.compare_digest(answer[:32], _proof(token, b"caller", asked)):
        return False
    link.sendall(_proof(token, b"holder", answer[32:]))
    return True


def send(link: socket.socket, message: dict[str, Any]) -> None:
    link.sendall(_framed(message))


def send_with_descriptor(link: socket.socket, message: dict[str, Any], descriptor: int) -> None:
    """For a socket of the node: the descriptor arrives with the message."""
    content = _framed(message)
    sent = socket.send_fds(link, [content], [descriptor])
    link.sendall(content[sent:])


def send_shard(link: socket.socket, message: dict[str, Any], file: FileIO, size_bytes: int) -> None:
    """A message, and the first bytes of a file after it, which are not copied to this process."""
    send(link, message | {"size_bytes": size_bytes})
    if link.sendfile(file, count=size_bytes) != size_bytes:
        raise NoAnswer("the memory of the shard ended early")


def receive(link: socket.socket) -> dict[str, Any]:
    """Raises NoAnswer if the other end closed the connection or sent something else."""
    return _decoded(bytes(_received(link, _length(_received(link, _LENGTH_BYTES)))))


def receive_with_descriptor(link: socket.socket) -> tuple[dict[str, Any], int | None]:
    first, descriptors, _, _ = socket.recv_fds(link, _LENGTH_BYTES, 1)
    if not first:
        raise NoAnswer("it closed the connection")
    rest = bytes(_received(link, _LENGTH_BYTES - len(first)))
    content = _received(link, _length(bytearray(first + rest)))
    return _decoded(bytes(content)), descriptors[0] if descriptors else None


def receive_into(link: socket.socket, memory: memoryview) -> None:
    """Fill the memory with the bytes that follow a message."""
    at = 0
    while at < len(memory):
        got = link.recv_into(memory[at : at + _PART_BYTES])
        if not got:
            raise NoAnswer("it closed the connection")
        at += got


def _received(link: socket.socket, size_bytes: int) -> bytearray:
    content = bytearray(size_bytes)
    receive_into(link, memoryview(content))
    return content


def _framed(message: dict[str, Any]) -> bytes:
    content = json.dumps(message).encode()
    return len(content).to_bytes(_LENGTH_BYTES, "big") + content


def _length(content: bytearray) -> int:
    length = int.from_bytes(content, "big")
    if length > HEAD_BYTES:
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
