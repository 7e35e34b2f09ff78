"""The local backend with a real Ray cluster."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import time
from pathlib import Path

import httpx
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from cockpit.backends.local import (
    GroupSpec,
    LocalBackend,
    down,
    lifecycle,
    list_clusters,
    status,
    up,
)
from cockpit.backends.local.files import RunFiles
from cockpit.backends.local.pods.process import Found, find
from cockpit.backends.local.spec import ClusterSpec
from cockpit.model.cluster import ClusterHealth, NodeType, Pod, PodPhase
from cockpit.model.error import CockpitError, UnreachableError
from cockpit.model.event import Notice, PodsListed, SourceHealth
from cockpit.model.scale import ScaleRequest
from tests.backends.contract import BackendContract, one_ready_worker, seen, workers
from tests.local_cluster import ONE_WORKER, separate_state, until

pytestmark = [pytest.mark.slow, pytest.mark.ray]

NAME = "contract"


@pytest.fixture(scope="module")
def backend(one_worker: LocalBackend) -> LocalBackend:
    return one_worker


def spec_of(name: str) -> ClusterSpec:
    cluster = status(name)
    assert cluster is not None
    assert cluster.spec is not None
    return cluster.spec


def processes(spec: ClusterSpec) -> tuple[Found, ...]:
    return find(spec.uid, (), str(RunFiles.of(spec.uid).directory))


def assert_nothing_is_left(name: str, spec: ClusterSpec, state: Path) -> None:
    assert processes(spec) == ()
    assert not RunFiles.of(spec.uid).directory.exists()
    assert not (state / "cockpit/local" / name).exists()


class TestLocalBackend(BackendContract):
    """The contract of all backends."""


class TestOneCluster:
    async def test_a_second_up_of_the_same_name_is_refused(self, backend: LocalBackend) -> None:
        with pytest.raises(CockpitError, match="already up") as refused:
            await up(NAME, ONE_WORKER)
        assert f"cockpit local down {NAME}" in refused.value.todo

    async def test_all_files_are_for_their_user_alone(self, backend: LocalBackend) -> None:
        cluster = status(NAME)
        assert cluster is not None
        run = RunFiles.of(spec_of(NAME).uid)
        for directory in (cluster.directory, run.directory, run.directory.parent):
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700, directory
        for path in cluster.directory.rglob("*"):
            mode = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == mode, path
        assert stat.S_IMODE(run.socket.stat().st_mode) == 0o600

    async def test_a_wrong_token_is_refused(self, backend: LocalBackend) -> None:
        route = await backend.dashboard()
        wrong = {"Authorization": "Bearer " + "0" * 64}
        async with httpx.AsyncClient(base_url=route.base_url, headers=wrong) as client:
            assert (await client.get("/api/jobs/")).status_code == 403

    async def test_ray_itself_refuses_a_client_without_the_token(
        self, backend: LocalBackend
    ) -> None:
        (pod,) = await workers(backend)
        without = ["env", "-u", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN=wrong", "ray", "status"]
        result = await backend.exec(pod.name, without)
        assert result.exit_code != 0

    async def test_a_pod_ended_with_grace_drains_before_it_is_replaced(
        self, backend: LocalBackend
    ) -> None:
        (victim,) = await workers(backend)
        await backend.delete_pod(victim.name, uid=victim.uid, grace_s=30)
        listed = await seen(backend, PodsListed)
        assert [pod.phase for pod in listed.pods if pod.name == victim.name] == [
            PodPhase.TERMINATING
        ]
        await seen(
            backend, Notice, lambda note: (note.name, note.reason) == (victim.name, "Deleted")
        )
        # The notice is written shortly before the list without the pod.
        await seen(
            backend,
            PodsListed,
            lambda listed: (
                one_ready_worker(listed) and victim.name not in {pod.name for pod in listed.pods}
            ),
        )

    async def test_scaling_down_takes_the_named_pod_first(self, backend: LocalBackend) -> None:
        (old,) = await workers(backend)
        scaled = await backend.scale(ScaleRequest("gpu", 2))
        assert (scaled.before, scaled.after, scaled.warning) == (1, 2, "")

        def two_ready(listed: PodsListed) -> bool:
            return sum(pod.ready and pod.node_type == NodeType.WORKER for pod in listed.pods) == 2

        await seen(backend, PodsListed, two_ready)
        await backend.scale(ScaleRequest("gpu", 1, remove=(old.name,)))
        listed = await seen(
            backend, PodsListed, lambda listed: old.name not in {pod.name for pod in listed.pods}
        )
        assert one_ready_worker(listed)

    async def test_a_pod_whose_raylet_is_killed_fails_with_the_reason(
        self, backend: LocalBackend
    ) -> None:
        (victim,) = await workers(backend)
        result = await backend.exec(victim.name, ["pgrep", "-f", f"raylet.*{victim.ip} "])
        assert result.exit_code == 0
        os.kill(int(result.stdout.split()[0]), signal.SIGKILL)

        def failed(listed: PodsListed) -> bool:
            return any(pod.name == victim.name and pod.phase == "Failed" for pod in listed.pods)

        listed = await seen(backend, PodsListed, failed)
        (pod,) = (pod for pod in listed.pods if pod.name == victim.name)
        assert "raylet" in pod.reason
        assert pod.ended_s is not None
        assert not [found for found in processes(spec_of(NAME)) if found.pod == victim.name]
        await seen(backend, PodsListed, one_ready_worker)

    async def test_a_killed_head_is_remade_where_it_was_and_its_workers_rejoin(
        self, backend: LocalBackend
    ) -> None:
        (worker,) = await workers(backend)
        old = _head(NAME)
        before = await backend.dashboard()
        await backend.delete_pod(old.name, uid=old.uid, grace_s=0)
        await until(lambda: _head(NAME).name != old.name)
        with pytest.raises(UnreachableError, match="head"):
            await backend.dashboard()
        await seen(
            backend,
            PodsListed,
            lambda listed: one_ready_worker(listed) and _head(NAME).ready,
        )
        (again,) = await workers(backend)
        assert (again.name, again.restarts) == (worker.name, worker.restarts + 1)
        assert (await backend.dashboard()).base_url == before.base_url
        assert _head(NAME).ip == old.ip


class TestLifecycle:
    @pytest.mark.timed
    async def test_two_clusters_live_side_by_side_and_an_orphaned_one_is_taken_down_whole(
        self, backend: LocalBackend
    ) -> None:
        other = await up("other", [GroupSpec("gpu", replicas=0)])
        assert {cluster.name for cluster in list_clusters()} == {NAME, "other"}
        assert other.health is ClusterHealth.READY
        assert other.status is not None
        route = await LocalBackend("other").dashboard()
        spec = spec_of("other")
        await _start_job(route.base_url, route.headers)
        sleeper = await _driver(spec)
        assert os.getsid(sleeper) != os.getsid(_pid_of_head("other"))

        os.kill(other.status.operator.pid, signal.SIGKILL)
        await until(lambda: not _cluster_is_run("other"))
        left = status("other")
        assert left is not None
        assert "operator not running" in left.message
        reported = await seen(LocalBackend("other"), SourceHealth)
        assert not reported.ok
        assert "operator not running" in reported.error
        with pytest.raises(UnreachableError, match="cannot be changed"):
            await LocalBackend("other").scale(ScaleRequest("gpu", 1))
        with pytest.raises(CockpitError, match="left over"):
            await up("other", [])

        began = time.monotonic()
        assert down("other") > 5
        assert time.monotonic() - began < 5
        assert_nothing_is_left("other", spec, left.directory.parents[2])
        mine = status(NAME)
        assert mine is not None
        assert mine.health is ClusterHealth.READY

    async def test_an_interrupted_up_leaves_nothing(self) -> None:
        with separate_state() as state:
            starting = asyncio.create_task(up("early", ONE_WORKER))
            await until(lambda: _has_processes("early"))
            spec = spec_of("early")
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            assert_nothing_is_left("early", spec, state)

    async def test_removing_the_state_by_hand_ends_the_cluster(self) -> None:
        with separate_state() as state:
            starting = asyncio.create_task(up("bare", ONE_WORKER))
            await until(lambda: _has_processes("bare"))
            spec = spec_of("bare")
            starting.cancel()
            # The operator may write at this moment: first it loses the directory as a whole.
            removed = (state / "cockpit/local/bare").rename(state / "removed")
            shutil.rmtree(removed, ignore_errors=True)
            with pytest.raises((asyncio.CancelledError, CockpitError)):
                await starting
            await until(
                lambda: not processes(spec) and not RunFiles.of(spec.uid).directory.exists()
            )

    async def test_a_taken_port_is_named_and_nothing_is_left(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.socket() as other, separate_state() as state:
            other.bind(("", 0))
            taken = other.getsockname()[1]
            monkeypatch.setattr(lifecycle, "choose_ports", lambda count: [taken] * count)
            with pytest.raises(CockpitError, match=f"port {taken} is taken"):
                await up("taken", ONE_WORKER)
            assert list((state / "cockpit").rglob("*")) == []

    async def test_a_head_that_dies_at_start_reports_why_with_the_end_of_its_log(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        python = tmp_path / "python"
        python.write_text("#!/bin/sh\necho 'ImportError: no raylet here'; exit 3\n")
        python.chmod(0o700)
        monkeypatch.setattr(
            lifecycle, "to_builtins", lambda spec: to_builtins(replace(spec, python=str(python)))
        )
        with separate_state() as state:
            with pytest.raises(CockpitError, match="exited 3: ImportError: no raylet") as failed:
                await up("broken", ONE_WORKER)
            assert "ImportError" in failed.value.why
            assert list((state / "cockpit").rglob("*")) == []


def _head(name: str) -> Pod:
    cluster = status(name)
    assert cluster is not None
    assert cluster.head is not None
    return cluster.head


def _pid_of_head(name: str) -> int:
    cluster = status(name)
    assert cluster is not None
    assert cluster.status is not None
    process = cluster.status.pods[0].process
    assert process is not None
    return process.pid


def _cluster_is_run(name: str) -> bool:
    cluster = status(name)
    return cluster is not None and cluster.operator_alive


def _has_processes(name: str) -> bool:
    cluster = status(name)
    items = cluster.status.pods if cluster is not None and cluster.status is not None else ()
    return any(item.process for item in items)


async def _start_job(url: str, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        answer = await client.post("/api/jobs/", json={"entrypoint": "sleep 987654"})
        assert answer.status_code == 200, answer.text


async def _driver(spec: ClusterSpec) -> int:
    """The job's process, which Ray starts in a separate session."""
    found: list[int] = []

    def there() -> bool:
        for item in processes(spec):
            command = Path(f"/proc/{item.id.pid}/cmdline")
            if command.exists() and command.read_bytes() == b"sleep\x00987654\x00":
                found.append(item.id.pid)
        return bool(found)

    await until(there)
    return found[0]
