from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cockpit.backends.private_folder import private_folder
from cockpit.backends.ssh import watch
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.connection import Connection
from cockpit.backends.ssh.description import Host, Hosts
from tests.sshd import Sshd, hosts

Cluster = tuple[Hosts, list[Sshd]]


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with hosts() as listed:
        yield listed[0]


@pytest.fixture
def folder() -> Iterator[Path]:
    with private_folder() as made:
        yield made


@pytest.fixture(autouse=True)
def slow_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch begins with the answers of all hosts, also if this machine is busy."""
    monkeypatch.setattr(watch, "FIRST_AFTER_S", 60.0)


def host_of(sshd: Sshd) -> Host:
    return Host("gpu-1", sshd.address, sshd.address, "gpu", port=sshd.port)


@pytest.fixture
async def connection(sshd: Sshd, folder: Path) -> AsyncIterator[Connection]:
    opened = Connection(host_of(sshd), folder, "c", str(sshd.config))
    await opened.open()
    yield opened
    await opened.aclose()


@pytest.fixture
async def backend(cluster: Cluster) -> AsyncIterator[SshBackend]:
    """On the hosts of the module's fixture `cluster`."""
    made = SshBackend(cluster[0])
    yield made
    await made.aclose()
