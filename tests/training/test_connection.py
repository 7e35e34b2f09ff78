"""The connections between processes of a run: callers without its token, and refused messages."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from unittest.mock import patch

import pytest

from training import connection
from training.checkpoint.memory.holder import Holder
from training.connection import (
    MESSAGE_BYTES,
    Address,
    Listener,
    NoAnswer,
    connected,
    new_token,
    on_host,
    receive,
    send,
)
from training.replicas.client import QuorumClient
from training.replicas.messages import QuorumAddress
from training.replicas.server import QuorumServer
from training.replicas.snapshots import HealError, Snapshots, fetch

LIMIT_S = 30.0
"""Until a test fails instead of waiting on."""


@contextmanager
def holder() -> Iterator[Address]:
    with closing(Holder("a", "127.0.0.1", new_token())) as started:
        yield started.address


@contextmanager
def quorum() -> Iterator[Address]:
    with QuorumServer(2, patience_s=LIMIT_S) as server:
        yield server.address.server


@contextmanager
def snapshots() -> Iterator[Address]:
    token = new_token()
    with Snapshots("127.0.0.1", token) as started:
        host, _, port = started.address.rpartition(":")
        yield Address(host, int(port), token)


@pytest.fixture(params=[holder, quorum, snapshots])
def address(request: pytest.FixtureRequest) -> Iterator[Address]:
    service: Callable[[], AbstractContextManager[Address]] = request.param
    with service() as found:
        yield found


def is_closed(link: socket.socket) -> bool:
    """Whether the other end closes the connection, with nothing sent before."""
    link.settimeout(LIMIT_S)
    try:
        return link.recv(1) == b""
    except ConnectionResetError:  # it closed the connection before it had read all
        return True


def test_caller_without_the_token_is_refused(address: Address) -> None:
    with pytest.raises(NoAnswer, match="closed the connection"):
        connected(replace(address, token=new_token()))
    with connected(address):
        pass


def test_caller_that_sends_a_message_instead_of_a_proof_is_refused(address: Address) -> None:
    with socket.create_connection((address.host, address.port)) as link:
        link.recv(32)
        # Longer than a proof, so that the listener need not wait for the rest of one.
        send(link, {"kind": "Join", "replica": 0, "address": "127.0.0.1:1", "op": "entries"})
        assert is_closed(link)


def test_caller_that_sends_nothing_is_disconnected() -> None:
    with (
        patch.object(connection, "ADMIT_S", 0.05),
        quorum() as address,
        socket.create_connection((address.host, address.port)) as link,
    ):
        link.recv(32)
        assert is_closed(link)


def test_proof_of_another_connection_is_refused(address: Address) -> None:
    with socket.create_connection((address.host, address.port)) as link:
        asked = link.recv(32)
    proof = connection._proof(address.token, b"caller", asked)
    with socket.create_connection((address.host, address.port)) as link:
        assert link.recv(32) != asked
        link.sendall(proof + bytes(32))
        assert is_closed(link)


def test_listener_without_the_token_is_refused() -> None:
    listening, token = on_host("127.0.0.1"), new_token()
    host, port = listening.getsockname()
    with (
        patch.object(connection, "_admits", reflects),
        closing(Listener(listening, new_token(), lambda link: None, "test")),
        pytest.raises(NoAnswer, match="does not have the token"),
    ):
        connected(Address(host, port, token))


def reflects(link: socket.socket, token: bytes) -> bool:
    """Asks the caller for the proof of what the caller asks, and returns it."""
    link.sendall(bytes(32))
    answer = connection.received(link, 64)
    link.sendall(answer[:32])
    return True


def test_huge_message_is_refused_before_it_is_read(address: Address) -> None:
    with connected(address) as link:
        link.sendall((MESSAGE_BYTES + 1).to_bytes(4, "big"))
        assert is_closed(link)
    with connected(address):
        pass


@pytest.mark.parametrize(
    "content", [b"\x00\x00", b"\x00\x00\x00\x09{}", b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x01{"]
)
def test_torn_or_malformed_message_ends_its_connection_only(
    content: bytes, address: Address
) -> None:
    with connected(address) as link:
        link.sendall(content)
        with suppress(OSError):  # the listener has closed the connection already
            link.shutdown(socket.SHUT_WR)
        assert is_closed(link)
    with connected(address):
        pass


def test_message_longer_than_the_limit_is_not_received() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall((MESSAGE_BYTES + 1).to_bytes(4, "big"))
        with pytest.raises(NoAnswer, match="a message of 1,048,577 bytes"):
            receive(ours)


def test_replica_without_the_token_is_in_no_quorum_and_gets_no_state() -> None:
    with QuorumServer(2, patience_s=LIMIT_S) as server:
        wrong = QuorumAddress(
            replace(server.address.server, token=new_token()), server.address.store_port
        )
        with pytest.raises(NoAnswer):
            QuorumClient(wrong, 0)
    with snapshots() as address, pytest.raises(HealError, match="closed the connection"):
        fetch(f"{address.host}:{address.port}", new_token(), 1)


def test_state_is_fetched_with_the_token() -> None:
    token = new_token()
    with Snapshots("127.0.0.1", token) as started:
        started.publish(3, b"weights")
        assert fetch(started.address, token, 3) == b"weights"
        with pytest.raises(HealError):
            fetch(started.address, token, 2)  # of a quorum that has changed


def test_listener_accepts_no_connection_after_it_is_closed() -> None:
    with holder() as address:
        pass
    with pytest.raises(ConnectionRefusedError):
        connected(address)


def test_token_is_not_part_of_the_text_of_an_address() -> None:
    address = Address("h", 1, b"secret")
    assert "secret" not in repr(address)
    assert "secret" not in repr(QuorumAddress(address, 2))
