"""The backend `ssh` with real Ray on three hosts: a head, a worker and a spare."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cockpit.backends.ssh.backend import SshBackend
from cockpit.model.cluster import PodPhase
from cockpit.model.event import PodsListed
from tests.backends.contract import BackendContract, one_ready_worker, seen, workers
from tests.backends.ssh.conftest import Cluster
from tests.ssh_cluster import running_hosts

pytestmark = [pytest.mark.nightly, pytest.mark.ray]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_hosts(real=True) as running:
        yield running


class TestSshBackendOnRay(BackendContract):
    """The contract of all backends."""


async def test_killed_raylet_fails_its_pod_with_the_reason_and_the_spare_takes_over(
    backend: SshBackend,
) -> None:
    (victim,) = await workers(backend)
    result = await backend.exec(victim.name, ["pgrep", "-f", f"raylet.*{victim.ip} "])
    await backend.exec(victim.name, ["kill", "-9", result.stdout.split()[0]])

    def failed(listed: PodsListed) -> bool:
        return any(p.name == victim.name and p.phase is PodPhase.FAILED for p in listed.pods)

    listed = await seen(backend, PodsListed, failed)
    assert ["raylet" in pod.reason for pod in listed.pods if pod.name == victim.name] == [True]
    await seen(backend, PodsListed, one_ready_worker)
    (replacement,) = await workers(backend)
    assert replacement.host != victim.host
