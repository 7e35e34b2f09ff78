"""The backend `ssh` on three hosts: a head, a worker and a spare, with a stand-in for Ray.

test_real_ray runs the contract, and what depends on Ray, with real Ray.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.protocol import Backend
from cockpit.backends.ssh import connection, lifecycle, watch
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.watch import NO_OPERATOR
from cockpit.cli.main import main
from cockpit.model.cluster import ClusterHealth
from cockpit.model.event import (
    ClusterSeen,
    Event,
    KubernetesNodesListed,
    PodsListed,
    SourceHealth,
)
from cockpit.model.scale import ScaleRequest
from tests.backends.contract import (
    TIMEOUT_S,
    BackendContract,
    one_ready_worker,
    seen,
    workers,
)
from tests.backends.ssh.conftest import Cluster
from tests.ssh_cluster import running_hosts

pytestmark = pytest.mark.slow

DOCTOR = {
    "reached": "3 of 3 hosts",
    "address": "Ray can listen at the address of each host",
    "token": "every Ray process requires it",
    "cluster": "as in the file",
    "operator": "running",
    "ray token": "the dashboard refuses requests without it",
}


def doctor(path: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the checks by name."""
    code = main(["doctor", "--hosts", path, "-o", "json"])
    return code, {check["name"]: check for check in json.loads(capsys.readouterr().out)}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_hosts(real=False) as running:
        yield running


class TestSshBackend(BackendContract):
    """The contract of all backends."""


async def health(backend: Backend, wanted: ClusterHealth) -> ClusterSeen:
    return await seen(backend, ClusterSeen, lambda event: event.health is wanted)


async def test_hosts_are_listed_with_their_processors(backend: SshBackend) -> None:
    listed = await seen(backend, KubernetesNodesListed)
    assert [(node.name, node.ready) for node in listed.nodes] == [
        (f"host-{number}", True) for number in range(3)
    ]
    assert all(node.cpus == os.cpu_count() for node in listed.nodes)


def test_doctor_checks_the_hosts_and_what_runs_on_them(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts, listed = cluster
    code, checks = doctor(hosts.path, capsys)
    assert code == 0
    assert {name: check["found"] for name, check in checks.items() if name in DOCTOR} == DOCTOR
    assert "free in /tmp" in checks["room"]["found"]
    listed[2].stop()
    try:
        code, checks = doctor(hosts.path, capsys)
        assert code == 1
        wrong = {name for name, check in checks.items() if not check["ok"]}
        assert wrong == {"host host-2", "reached"}
        assert checks["host host-2"]["fix"].startswith("Try it by hand: ssh")
    finally:
        listed[2].start()


def test_doctor_refuses_a_file_that_has_changed_since_up(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(cluster[0].path)
    text = path.read_text()
    path.write_text(text.replace("cpus = 1\n", "cpus = 2\n", 1))
    try:
        code, checks = doctor(str(path), capsys)
    finally:
        path.write_text(text)
    assert code == 1
    assert "has changed since it was started" in checks["cluster"]["found"]
    assert checks["cluster"]["fix"] == f"cockpit up --on hosts {path}"


async def test_scale_uses_the_spare_and_removes_the_named_pod_first(backend: SshBackend) -> None:
    (old,) = await workers(backend)
    await backend.scale(ScaleRequest("gpu", 2))
    await seen(backend, PodsListed, lambda listed: sum(p.ready for p in listed.pods) == 3)
    scaled = await backend.scale(ScaleRequest("gpu", 1, remove=(old.name,)))
    assert (scaled.before, scaled.after) == (2, 1)
    listed = await seen(
        backend, PodsListed, lambda listed: old.name not in {pod.name for pod in listed.pods}
    )
    assert one_ready_worker(listed)


async def test_host_that_cannot_be_reached_is_reported_and_its_return_too(
    backend: SshBackend, cluster: Cluster
) -> None:
    (worker,) = await workers(backend)
    sshd = next(one for one in cluster[1] if one.address == worker.ip)
    sshd.stop()
    try:
        state = await health(backend, ClusterHealth.DEGRADED)
        assert worker.host in state.message
        (pod,) = await workers(backend)
        assert (pod.uid, pod.ready) == (worker.uid, True)
    finally:
        sshd.start()
    await health(backend, ClusterHealth.READY)


async def test_hosts_that_have_not_answered_are_listed_at_once_and_the_pods_as_incomplete(
    backend: SshBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FIRST_AFTER_S", 0.0)
    nodes: list[list[str]] = []
    pods: list[PodsListed] = []
    async with asyncio.timeout(120), aclosing(backend.watch()) as events:
        async for event in events:
            if isinstance(event, KubernetesNodesListed):
                nodes.append([node.reason for node in event.nodes])
            if isinstance(event, PodsListed):
                pods.append(event)
                if not event.more:
                    break
    assert nodes[0] == ["connecting"] * 3
    assert pods[0].more
    assert len(pods[-1].pods) == 2


async def test_host_that_does_not_answer_delays_the_first_list_by_a_moment_only(
    backend: SshBackend, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FIRST_AFTER_S", 0.25)
    monkeypatch.setitem(connection.OPTIONS, "ConnectTimeout", "600")
    (spare,) = {one.address for one in cluster[1][1:]} - {
        worker.ip for worker in await workers(backend)
    }
    sshd = next(one for one in cluster[1] if one.address == spare)
    os.kill(sshd.daemon, signal.SIGSTOP)  # the kernel accepts connections, and ssh waits
    backend = SshBackend(cluster[0])
    try:
        newest: dict[type[Event], Event] = {}
        async with asyncio.timeout(TIMEOUT_S), aclosing(backend.watch()) as events:
            async for event in events:
                newest[type(event)] = event
                pods = newest.get(PodsListed)
                if (
                    isinstance(event, SourceHealth)
                    and isinstance(pods, PodsListed)
                    and len(pods.pods) == 2
                ):
                    break
        state, nodes = newest[ClusterSeen], newest[KubernetesNodesListed]
        assert isinstance(state, ClusterSeen)
        assert state.message == "connecting: 2 of 3 hosts answered"
        assert isinstance(pods, PodsListed)
        assert (len(pods.pods), pods.more) == (2, True)
        assert isinstance(nodes, KubernetesNodesListed)
        assert {(node.reason, node.ready) for node in nodes.nodes if node.ip == spare} == {
            ("connecting", False)
        }
    finally:
        os.kill(sshd.daemon, signal.SIGCONT)
        await backend.aclose()


async def test_cut_connection_to_the_head_is_restored_and_the_run_is_not_touched(
    backend: SshBackend, cluster: Cluster
) -> None:
    (worker,) = await workers(backend)
    lost = False
    async with asyncio.timeout(120), aclosing(backend.watch()) as events:
        async for event in events:
            if isinstance(event, SourceHealth):
                if event.ok and lost:
                    break
                if event.ok:
                    cluster[1][0].cut()
                lost = lost or not event.ok
    await seen(backend, PodsListed, one_ready_worker)
    assert [pod.uid for pod in await workers(backend)] == [worker.uid]


async def test_operator_that_ended_is_reported_and_up_starts_another(
    backend: SshBackend, cluster: Cluster
) -> None:
    hosts, _ = cluster
    await health(backend, ClusterHealth.READY)  # the operator of the test before is connected again
    file = lifecycle.operator_log(hosts).with_suffix(".pid")
    operator = file.read_text()
    await lifecycle.up(hosts, "fast", 60.0, print)
    assert file.read_text() == operator
    (worker,) = await workers(backend)
    os.kill(int(file.read_text().split()[0]), signal.SIGKILL)
    state = await health(backend, ClusterHealth.DEGRADED)
    assert state.message == NO_OPERATOR
    assert not (await backend.capabilities())["scale"].allowed
    await lifecycle.up(hosts, "fast", 120.0, print)
    assert [pod.uid for pod in await workers(backend)] == [worker.uid]


async def test_killed_head_is_started_again_and_its_workers_too(backend: SshBackend) -> None:
    (worker,) = await workers(backend)
    listed = await seen(backend, PodsListed)
    (head,) = (pod for pod in listed.pods if pod.node_type == "head" and pod.ended_s is None)
    await backend.delete_pod(head.name, uid=head.uid, grace_s=0)
    await seen(backend, ClusterSeen, lambda event: event.health is not ClusterHealth.READY)
    await health(backend, ClusterHealth.READY)
    (again,) = await workers(backend)
    assert again.uid != worker.uid
