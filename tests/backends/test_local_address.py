"""Addresses, ports and GPUs that no other process uses."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import to_builtins

from cockpit.backends.local import LocalBackend, address
from cockpit.backends.local.address import (
    choose_address,
    choose_network,
    choose_ports,
    port_is_free,
    require_own_listener,
)
from cockpit.backends.local.files import ClusterFiles
from cockpit.backends.local.pods.live_pod import gpus_here, take_gpus
from cockpit.backends.local.pods.process import identify
from cockpit.backends.local.pods.readiness import ask_nodes
from cockpit.backends.local.spec import ClusterSpec
from cockpit.backends.local.state import PodStatus, Status, write_status
from cockpit.config import paths
from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.error import NotAllowedError, UnreachableError
from cockpit.sources.ray.dashboard import Dashboard


def test_a_network_is_loopback_and_not_the_usual_one() -> None:
    octets = [int(octet) for octet in choose_network().split(".")]
    assert octets[0] == 127
    assert octets[1] >= 64


def test_a_network_in_use_is_not_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    places = iter([10, 20, 11, 21])
    monkeypatch.setattr("secrets.randbelow", lambda below: next(places))
    with socket.socket() as other:
        other.bind(("127.74.20.7", 0))
        other.listen()
        assert choose_network() == "127.75.21"


def test_the_first_worker_comes_after_the_head() -> None:
    assert choose_address("127.77.1", []) == "127.77.1.2"


def test_a_replacement_never_has_the_address_of_the_dead() -> None:
    assert choose_address("127.77.1", ["127.77.1.2", "127.77.1.3"]) == "127.77.1.4"


def test_when_all_addresses_were_used_the_oldest_comes_again() -> None:
    used = [f"127.77.1.{last}" for last in range(2, 255)]
    oldest = used.pop(40)
    assert choose_address("127.77.1", [oldest, *used]) == oldest


def test_chosen_ports_differ_and_are_free() -> None:
    ports = choose_ports(20)
    assert len(set(ports)) == 20
    assert all(port_is_free(port) for port in ports)


def test_a_port_bound_on_any_address_is_not_free() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert not port_is_free(other.getsockname()[1])


def test_only_the_gpus_that_the_user_was_given_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    assert gpus_here() == ("3", "5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus_here() == ()


def test_a_gpu_is_given_to_one_pod_at_a_time() -> None:
    assert take_gpus(1, ("0", "1"), ("0",)) == ("1",)
    assert take_gpus(2, ("0", "1"), ("0",)) is None
    assert take_gpus(0, (), ()) == ()


TOKEN = "0123456789abcdef"


@contextmanager
def listening(host: str) -> Iterator[tuple[int, list[bytes]]]:
    """A port of `host` with a listener, and what each connection sent to it."""
    received: list[bytes] = []
    with socket.create_server((host, 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    received.append(connection.recv(65536))
                    body = json.dumps({"ray_version": "2.60.0"})
                    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n"
                    connection.sendall(f"{head}Connection: close\r\n\r\n{body}".encode())

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], received
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def ipv4(host: str) -> str:
    return f"{int.from_bytes(socket.inet_aton(host), 'little'):08X}"


MAPPED = f"0000000000000000FFFF0000{ipv4('127.77.1.1')}"
EVERY6 = "0" * 32


@pytest.mark.parametrize(
    ("ours", "rows"),
    [
        (True, [(ipv4("127.77.1.1"), "0A", 1000)]),
        (True, [(ipv4("0.0.0.0"), "0A", 1000)]),
        (True, [(MAPPED, "0A", 1000)]),
        (True, [(EVERY6, "0A", 1000)]),
        # The exact address wins over all addresses.
        (True, [(ipv4("0.0.0.0"), "0A", 1001), (ipv4("127.77.1.1"), "0A", 1000)]),
        (False, [(ipv4("127.77.1.1"), "0A", 1001)]),
        (False, [(MAPPED, "0A", 1001)]),
        (False, [(EVERY6, "0A", 1001)]),
        (False, [(ipv4("0.0.0.0"), "0A", 1000), (ipv4("127.77.1.1"), "0A", 1001)]),
        # A connection is no listener, and another address is another.
        (None, [(ipv4("127.77.1.1"), "01", 1000), (ipv4("127.77.1.2"), "0A", 1000)]),
    ],
)
def test_owner_of_a_listener_is_read_from_the_kernels_tables(
    ours: bool | None,
    rows: list[tuple[str, str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def row(place: str, state: str, uid: int) -> str:
        peer = "0" * len(place)
        return f" 0: {place}:1F90 {peer}:0000 {state} 00000000:00000000 00:00000000 00000000 {uid}"

    for name, digits in (("tcp", 8), ("tcp6", 32)):
        lines = [row(*each) for each in rows if len(each[0]) == digits]
        (tmp_path / name).write_text("\n".join(["  sl  local_address", *lines]) + "\n")
    monkeypatch.setattr(address, "PROC_NET", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if ours:
        require_own_listener("127.77.1.1", 8080, "The token")
        return
    with pytest.raises(UnreachableError if ours is None else NotAllowedError, match="not sent"):
        require_own_listener("127.77.1.1", 8080, "The token")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_listener_of_another_user_is_refused() -> None:
    network = choose_network()
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        with socket.create_server((f"{network}.1", 0)) as server:
            os.write(ready[1], str(server.getsockname()[1]).encode())
            os.read(done[0], 1)
        os._exit(0)
    try:
        port = int(os.read(ready[0], 16))
        with pytest.raises(NotAllowedError, match="not you"):
            require_own_listener(f"{network}.1", port, "The token")
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)


def local_cluster(name: str, port: int) -> LocalBackend:
    """The state files of a cluster that is up, without its processes."""
    files = ClusterFiles.of(name)
    files.directory.mkdir(parents=True)
    spec = ClusterSpec(name, "0a0b0c0d", "127.0.0", 1, port, 2, time.time(), "python", ())
    paths.replace_file(files.spec, json.dumps(to_builtins(spec)))
    paths.replace_file(files.token, TOKEN)
    head = Pod("head", "headgroup", NodeType.HEAD, PodPhase.RUNNING, ready=True, ip=spec.head_ip)
    me = identify(os.getpid())
    assert me is not None
    write_status(files, Status(time.time(), me, (PodStatus(head, me, 1.0),), was_ready=True))
    return LocalBackend(name)


async def test_token_is_not_sent_to_another_users_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with listening("127.0.0.1") as (port, received):
        backend = local_cluster("taken", port)
        route = await backend.dashboard()
        async with Dashboard(route) as dashboard:
            assert (await dashboard.version()).ray == "2.60.0"
            assert TOKEN.encode() in received[-1]
            assert (
                await asyncio.to_thread(ask_nodes, "127.0.0.1", port, TOKEN) is None
            )  # asked, and not Ray's response
            assert TOKEN.encode() in received[-1]
            received.clear()
            # The same sockets, as another user sees them.
            monkeypatch.setattr(os, "geteuid", lambda: 12345)
            with pytest.raises(NotAllowedError, match="listens there, not you"):
                await dashboard.version()  # by the route that was found before
        with pytest.raises(NotAllowedError, match="listens there, not you"):
            await backend.dashboard()
        assert await asyncio.to_thread(ask_nodes, "127.0.0.1", port, TOKEN) is None
    assert TOKEN.encode() not in b"".join(received)
