"""Hosts that restart, as namespaces of this machine, with a stand-in for Ray."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.description import Hosts
from cockpit.model.cluster import ClusterHealth
from cockpit.model.event import ClusterSeen
from tests.backends.contract import seen, workers
from tests.host_spaces import Network, host_spaces
from tests.local_cluster import separate_state
from tests.ssh_cluster import description, stand_in_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Network, Hosts]]:
    with separate_state(), host_spaces("host-0", "host-1") as network:
        python = stand_in_python(network.folder)
        hosts = description([one.sshd for one in network.hosts], python=python)
        asyncio.run(lifecycle.up(hosts, "fast", 300.0, print))
        yield network, hosts
        removed = asyncio.run(lifecycle.down(hosts))
        assert removed.hosts == 2


# Of the head's host; nightly: of a worker's.
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.nightly)])
async def test_cluster_continues_after_a_restart_of_a_host(
    running: tuple[Network, Hosts], number: int
) -> None:
    """Of the head's host too, which has lost the record of the cluster with its /tmp."""
    network, hosts = running
    backend = SshBackend(hosts)
    try:
        cluster = await seen(backend, ClusterSeen)
        (before,) = await workers(backend)
        await asyncio.to_thread(network.hosts[number].reboot)
        await seen(backend, ClusterSeen, lambda event: event.health is not ClusterHealth.READY)
        again = await seen(backend, ClusterSeen, lambda event: event.health is ClusterHealth.READY)
        assert again.uid == cluster.uid
        (after,) = await workers(backend)
        assert after.uid != before.uid
    finally:
        await backend.aclose()
