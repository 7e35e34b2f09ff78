"""The backend `ssh` with real Ray on three hosts: a head, a worker and a spare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.backends.ssh import node_list
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.description import parse
from cockpit.cli.main import main
from cockpit.model.cluster import PodPhase
from cockpit.model.event import PodsListed
from cockpit.sources.ray.dashboard import Dashboard
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


def test_doctor_finds_that_ray_requires_the_token_and_binds_the_ports_that_it_can(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["doctor", "--hosts", cluster[0].path, "-o", "json"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert code == 0, checks
    assert checks["token"]["found"] == "every Ray process requires it"
    assert "the head's address only; up to" in checks["ports"]["found"]
    assert checks["ray token"]["ok"]
    assert checks[f"dashboard of {cluster[0].cluster}"]["found"] == "2 nodes"


async def test_nodes_of_ray_are_printed_as_the_hosts_that_they_are(
    backend: SshBackend, cluster: Cluster
) -> None:
    await seen(backend, PodsListed, one_ready_worker)
    async with Dashboard(backend.dashboard) as dashboard:
        printed = node_list.text(await dashboard.nodes(), "lab")
    hosts = parse(printed, Path("/hosts.toml"))
    (worker,) = await workers(backend)
    assert [(h.address, h.is_head, h.cpus) for h in hosts.hosts] == [
        (cluster[0].head.address, True, None),
        (worker.ip, False, 1.0),
    ]


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
