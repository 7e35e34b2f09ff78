"""Connections to a real sshd."""

from __future__ import annotations

import asyncio
import os
import random
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.backends.local.pods.process import identify, is_alive
from cockpit.backends.ssh import connection as module
from cockpit.backends.ssh.connection import Connection
from cockpit.backends.ssh.description import Host
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError
from tests.backends.ssh.conftest import host_of
from tests.local_cluster import until
from tests.sshd import Sshd, children


async def test_command_gives_code_and_both_streams_and_takes_input(connection: Connection) -> None:
    script = "import sys; print(sys.stdin.readline()); print('err', file=sys.stderr); sys.exit(3)"
    result = await connection.run([sys.executable, "-c", script], data=b"it's $HOME\n")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "it's $HOME\n\n", "err\n")


async def test_a_remote_code_of_255_is_no_lost_connection(connection: Connection) -> None:
    assert (await connection.run(["sh", "-c", "exit 255"])).exit_code == 255


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}


async def test_control_socket_is_for_its_user_alone(connection: Connection, folder: Path) -> None:
    assert modes(folder) == {folder.name: 0o700, "c": 0o600}


async def test_forward_is_a_private_socket_to_a_port_of_the_host(
    connection: Connection, sshd: Sshd
) -> None:
    path = await connection.forward("f", sshd.address, sshd.port)
    reader, writer = await asyncio.open_unix_connection(path)
    async with asyncio.timeout(60):
        assert (await reader.readline()).startswith(b"SSH-2.0-")
    writer.close()


def received_bytes(sshd: Sshd) -> int:
    """What the sshd has sent on the connections that are open."""
    listed = subprocess.run(
        ["ss", "-tinH", "src", f"{sshd.address}:{sshd.port}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return sum(map(int, re.findall(r"bytes_sent:(\d+)", listed.stdout)))


async def test_output_that_repeats_is_compressed_over_the_whole_connection(
    connection: Connection, sshd: Sshd, tmp_path: Path
) -> None:
    text = "".join(f"{random.getrandbits(64):016x}" for _ in range(1_000))
    (tmp_path / "answer").write_text(text)
    show = ["cat", str(tmp_path / "answer")]
    before = received_bytes(sshd)
    for _ in range(10):
        assert (await connection.run(show)).stdout == text
    assert received_bytes(sshd) - before < 2 * len(text)


async def test_connection_ends_with_its_processes_and_socket(
    sshd: Sshd, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENDED_WITHIN_S", 60.0)  # on a busy machine
    opened = Connection(host_of(sshd), folder, "e", str(sshd.config))
    await opened.open()
    assert opened._master is not None
    process = identify(opened._master.pid)
    await opened.aclose()
    assert not is_alive(process)
    assert list(modes(folder)) == [folder.name]


async def test_lost_connection_is_reported_and_no_second_one_is_made(
    sshd: Sshd, connection: Connection
) -> None:
    running = asyncio.create_task(connection.run(["sleep", "600"]))
    assert sshd._process is not None
    listener = sshd._process.pid
    await until(lambda: len(children(listener)) >= 3)
    sshd.cut()
    async with asyncio.timeout(60):
        with pytest.raises(UnreachableError, match="gpu-1 was lost"):
            await running
        with pytest.raises(UnreachableError, match="gpu-1 was lost"):
            await connection.run(["true"])
    assert not connection.is_open


async def test_unknown_host_key_is_refused_with_the_command_to_compare_it(
    sshd: Sshd, folder: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(f"UserKnownHostsFile {tmp_path}/none\nGlobalKnownHostsFile none\n")
    with pytest.raises(NotAllowedError, match="gpu-1 is not known") as refused:
        await Connection(host_of(sshd), folder, "c", str(config)).open()
    assert f"ssh -p {sshd.port} {sshd.address}" in refused.value.todo
    assert list(modes(folder)) == [folder.name]


async def test_changed_host_key_is_refused_with_the_place_of_the_old_one(
    sshd: Sshd, folder: Path
) -> None:
    known = sshd.config.parent / "known_hosts"
    before = known.read_text()
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    try:
        with pytest.raises(NotAllowedError, match="host key of gpu-1 has changed") as refused:
            await Connection(host_of(sshd), folder, "c", str(sshd.config)).open()
        assert f"{known}:1" in refused.value.why
        assert "ssh-keygen -R" in refused.value.todo
        assert len(str(refused.value).splitlines()) == 3
        assert known.read_text() == before
    finally:
        known.unlink()
        sshd.trust()


async def test_refused_login_names_what_the_host_accepts(sshd: Sshd, folder: Path) -> None:
    host = replace(host_of(sshd), user="nobody-here")
    with pytest.raises(NotAllowedError, match="gpu-1 does not accept your login") as refused:
        await Connection(host, folder, "c", str(sshd.config)).open()
    assert "publickey" in refused.value.why
    assert "ssh-add" in refused.value.todo


async def test_closed_port_is_unreachable_with_ssh_s_reason(sshd: Sshd, folder: Path) -> None:
    host = replace(host_of(sshd), port=1)
    with pytest.raises(UnreachableError, match="gpu-1 cannot be reached") as refused:
        await Connection(host, folder, "c", str(sshd.config)).open()
    assert "Connection refused" in refused.value.why


async def test_missing_ssh_is_named(
    sshd: Sshd, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(CockpitError, match="no program ssh"):
        await Connection(host_of(sshd), folder, "c", str(sshd.config)).open()


def ssh_is(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "ssh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


async def test_login_that_hangs_is_given_up(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh_is("exec sleep 600", tmp_path, monkeypatch)
    monkeypatch.setattr(module, "LOGIN_TIMEOUT_S", 0.2)
    monkeypatch.setattr(module, "ENDED_WITHIN_S", 0.1)
    opened = Connection(Host("gpu-1", "10.0.0.1", "gpu-1", "gpu"), folder, "c")
    with pytest.raises(UnreachableError, match="Host gpu-1 does not answer") as refused:
        await opened.open()
    assert refused.value.todo == "Try it by hand: ssh gpu-1"
    assert not opened.is_open


async def test_errors_of_a_login_are_bounded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh_is("exec >&-; exec dd if=/dev/zero of=/dev/stderr bs=4096", tmp_path, monkeypatch)
    monkeypatch.setattr(module, "OUTPUT_LIMIT_BYTES", 1000)
    monkeypatch.setattr(module, "ENDED_WITHIN_S", 0.1)
    with pytest.raises(CockpitError, match="was ended"):
        await Connection(Host("gpu-1", "10.0.0.1", "gpu-1", "gpu"), folder, "c").open()


async def test_output_is_bounded(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTPUT_LIMIT_BYTES", 1000)
    with pytest.raises(CockpitError, match="was ended"):
        await connection.run(["yes"])
