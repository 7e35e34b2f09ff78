"""The operator's rules, with a shell script in the place of `ray start`: no Ray is needed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from cockpit.backends.local import GroupSpec, LocalBackend, down, status, up
from cockpit.backends.local import files as local_files
from cockpit.backends.local.address import choose_network, choose_ports
from cockpit.backends.local.files import ClusterFiles, RunFiles
from cockpit.backends.local.notices import NoticeReader, NoticeWriter
from cockpit.backends.local.operator import Operator
from cockpit.backends.local.pods.live_pod import LivePod
from cockpit.backends.local.pods.pods import Pods
from cockpit.backends.local.pods.process import CLUSTER_VARIABLE, Found, end, is_alive
from cockpit.backends.local.pods.readiness import ask_nodes
from cockpit.backends.local.spec import HEAD_GROUP, ClusterSpec
from cockpit.config import paths
from cockpit.model.cluster import ClusterHealth, Pod, PodPhase, Resources
from cockpit.model.error import (
    ChangedError,
    CockpitError,
    NotAllowedError,
    ReplacedError,
    UnreachableError,
    UsageError,
)
from cockpit.model.event import ClusterSeen, SourceHealth
from cockpit.model.scale import ScaleRequest
from tests.local_cluster import separate_state, until

NAME = "rules"
TOKEN = "a-token"

STAYS = "exec sleep 1000"
IGNORES_TERM = "trap '' TERM; echo $* >> {}; while :; do sleep 0.1; done"
"""With the path of the file where it is noted that it does."""
WORKERS_DIE = f'case "$*" in *--head*) {STAYS};; esac; echo "RuntimeError: no GPU driver"; exit 7'


@pytest.fixture
def state() -> Iterator[Path]:
    with separate_state() as state:
        yield state


def write(tmp_path: Path, script: str, *groups: GroupSpec) -> ClusterSpec:
    """A cluster's files, with a Python that is the script."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    gcs_port, dashboard_port, client_port = choose_ports(3)
    spec = ClusterSpec(
        name=NAME,
        uid=f"{time.monotonic_ns() & 0xFFFFFFFF:08x}",
        network=choose_network(),
        gcs_port=gcs_port,
        dashboard_port=dashboard_port,
        client_port=client_port,
        created_s=time.time(),
        python=str(python),
        groups=groups,
    )
    files = ClusterFiles.of(NAME)
    local_files.make_private(files.directory)
    paths.replace_file(files.spec, local_files.as_text(to_builtins(spec)))
    paths.replace_file(files.token, TOKEN)
    files.logs.mkdir()
    local_files.make_run_dir(RunFiles.of(spec.uid))
    return spec


class FakeHead:
    """The GCS port and the dashboard of a head that reports which addresses are alive."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.alive: set[str] = {spec.head_ip}
        self.all_alive = True
        self._spec = spec

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        head = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = self.headers["Authorization"] == f"Bearer {TOKEN}"
                self.send_response(200 if text else 401)
                self.end_headers()
                body = {"ray_version": "2.60.0"} if "version" in self.path else head._nodes()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: object) -> None:
                return

        gcs = await asyncio.start_server(
            lambda reader, writer: writer.close(), self._spec.head_ip, self._spec.gcs_port
        )
        dashboard = HTTPServer((self._spec.head_ip, self._spec.dashboard_port), Answer)
        thread = threading.Thread(target=dashboard.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            gcs.close()
            dashboard.shutdown()
            thread.join()
            dashboard.server_close()

    def _nodes(self) -> dict[str, object]:
        network = self._spec.network
        alive = {f"{network}.{last}" for last in range(1, 30)} if self.all_alive else self.alive
        nodes = [{"node_ip": ip, "state": "ALIVE", "state_message": None} for ip in alive]
        nodes.append({"node_ip": f"{network}.99", "state": "DEAD", "state_message": "lost"})
        return {"data": {"result": {"result": nodes}}}


@asynccontextmanager
async def operated(spec: ClusterSpec) -> AsyncIterator[FakeHead]:
    """The operator as a task of this process, and a head that answers once it was started."""
    head = FakeHead(spec)
    operator = asyncio.create_task(Operator(spec, ClusterFiles.of(NAME)).run())
    try:
        await until(lambda: any(pod.reason == "starting" for pod in pods(HEAD_GROUP)))
        async with head.listening():
            yield head
    finally:
        operator.cancel()
        await asyncio.gather(operator, return_exceptions=True)
        down(NAME)


def pods(group: str = "gpu") -> list[Pod]:
    cluster = status(NAME)
    return [pod for pod in cluster.pods if pod.group == group] if cluster else []


def ready(count: int) -> Callable[[], bool]:
    return lambda: sum(pod.ready for pod in pods()) == count


def reasons() -> list[str]:
    return [notice.reason for notice in NoticeReader(ClusterFiles.of(NAME).events).read()]


async def test_a_cluster_gets_ready_and_scales_both_ways(state: Path, tmp_path: Path) -> None:
    spec = write(tmp_path, STAYS, GroupSpec("gpu", 1, max=3))
    async with operated(spec):
        await until(ready(1))
        cluster = status(NAME)
        assert cluster is not None
        assert (cluster.health, cluster.ray_version) == (ClusterHealth.READY, "2.60.0")
        (first,) = pods()
        backend = LocalBackend(NAME)
        scaled = await backend.scale(ScaleRequest("gpu", 5))
        assert (scaled.before, scaled.after) == (1, 3)
        await until(ready(3))
        with pytest.raises(ChangedError, match="Group gpu has 3 replicas now, not 2"):
            await backend.scale(ScaleRequest("gpu", 1, expected=2))
        with pytest.raises(ReplacedError, match=f"Pod {first.name} was replaced"):
            await backend.exec(first.name, ["true"], uid="another")
        assert len(pods()) == 3
        with pytest.raises(UsageError, match="not of gpu"):
            await backend.scale(ScaleRequest("gpu", 2, remove=(pods(HEAD_GROUP)[0].name,)))
        with pytest.raises(ReplacedError, match=f"Pod {first.name} was replaced"):
            await backend.scale(
                ScaleRequest("gpu", 2, remove=(first.name,), remove_uids=("another",))
            )
        newest = pods()[-1]
        await backend.scale(ScaleRequest("gpu", 2))
        await until(lambda: newest.name not in {pod.name for pod in pods()})
        await backend.scale(ScaleRequest("gpu", 1, remove=(first.name,), remove_uids=(first.uid,)))
        await until(lambda: len(pods()) == 1)
        assert first.name not in {pod.name for pod in pods()}
        reread = status(NAME)
        assert reread is not None
        assert reread.spec is not None
        assert reread.spec.group("gpu").replicas == 1


async def test_a_killed_pod_stays_listed_as_failed_and_is_replaced_at_once(
    state: Path, tmp_path: Path
) -> None:
    async with operated(write(tmp_path, STAYS, GroupSpec("gpu", 1))):
        await until(ready(1))
        (victim,) = pods()
        with pytest.raises(ReplacedError, match=f"Pod {victim.name} was replaced since the plan"):
            await LocalBackend(NAME).delete_pod(victim.name, uid="of-another", grace_s=0)
        assert pods() == [victim]
        await LocalBackend(NAME).delete_pod(victim.name, uid=victim.uid, grace_s=0)
        await until(lambda: len(pods()) == 2)
        failed, fresh = pods()
        assert (failed.phase, failed.reason) == (PodPhase.FAILED, "killed by SIGKILL")
        assert fresh.ip != failed.ip
        assert fresh.uid not in ("", failed.uid)
        assert "BackOff" not in reasons(), "it is not held back"
        with pytest.raises(UsageError, match="is not running"):
            await LocalBackend(NAME).delete_pod(victim.name, uid=victim.uid, grace_s=0)


@pytest.mark.parametrize("profile", ["fast", "default"])
async def test_pod_that_may_join_a_run_imports_early_if_the_profile_keeps_spare_processes(
    profile: str, state: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    script = f'echo "${{COCKPIT_EARLY_IMPORTS:-none}} $*" >> {notes}; {STAYS}'
    spec = replace(write(tmp_path, script, GroupSpec("gpu", 1)), recovery=profile)
    async with operated(spec):
        await until(ready(1))
        (victim,) = pods()
        assert "early" not in notes.read_text(), "there can be no run yet"
        await LocalBackend(NAME).delete_pod(victim.name, uid=victim.uid, grace_s=0)
        await until(lambda: [pod.ready for pod in pods()] == [False, True])
        directory = RunFiles.of(spec.uid).pod(pods()[-1].name) / "early"
        await until(lambda: len(notes.read_text().splitlines()) >= 3)
        if profile == "default":
            assert [line.split()[0] for line in notes.read_text().splitlines()] == ["none"] * 3
            return
        imports = f"{directory} -m training.recovery.early_imports {spec.gcs_address} {directory}"
        await until(lambda: imports in notes.read_text().splitlines())
        starts = f"{directory} -m ray.scripts"
        await until(lambda: any(line.startswith(starts) for line in notes.open()))
        assert directory.stat().st_mode & 0o777 == 0o700
    assert not RunFiles.of(spec.uid).directory.exists()


@pytest.mark.timed
async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace(
    state: Path, tmp_path: Path
) -> None:
    ignores = tmp_path / "ignores"
    script = IGNORES_TERM.format(ignores)
    async with operated(write(tmp_path, script, GroupSpec("gpu", 1))):
        await until(ready(1))
        # The head, and the pod.
        await until(lambda: ignores.exists() and len(ignores.read_text().splitlines()) == 2)
        (victim,) = pods()
        began = time.monotonic()
        await LocalBackend(NAME).delete_pod(victim.name, uid=victim.uid, grace_s=1)
        assert [pod.phase for pod in pods()] == [PodPhase.TERMINATING]
        await until(lambda: victim.name not in {pod.name for pod in pods()})
        assert 0.9 < time.monotonic() - began < 5
        await until(ready(1))
        assert "Deleted" in reasons()


async def test_pods_that_die_at_start_back_off_and_report_why(state: Path, tmp_path: Path) -> None:
    async with operated(write(tmp_path, WORKERS_DIE, GroupSpec("gpu", 1))) as head:
        head.all_alive = False  # Ray would list a pod that has not ended yet as alive
        await until(lambda: any("back-off 2 s" in pod.reason for pod in pods()))
        failed = [pod for pod in pods() if pod.phase is PodPhase.FAILED]
        assert {pod.reason for pod in failed} == {"exited 7: RuntimeError: no GPU driver"}
        cluster = status(NAME)
        assert cluster is not None
        assert "back-off" in cluster.message


async def test_a_dead_head_is_remade_and_workers_restart_under_their_names(
    state: Path, tmp_path: Path
) -> None:
    spec = write(tmp_path, STAYS, GroupSpec("gpu", 1))
    async with operated(spec):
        await until(ready(1))
        (worker,) = pods()
        (old,) = pods(HEAD_GROUP)
        # The fake responds at the head's ports, which a new head would find in use.
        await LocalBackend(NAME).delete_pod(old.name, uid=old.uid, grace_s=0)
        await until(lambda: pods()[0].restarts == 1)
        (again,) = pods()
        assert (again.name, again.ip, again.restarts) == (worker.name, worker.ip, 1)
        await until(lambda: any("is taken" in pod.reason for pod in pods(HEAD_GROUP)))
        assert all(pod.ip == spec.head_ip for pod in pods(HEAD_GROUP))


class StuckProcesses:
    """In the place of `end`: it fails `times` times for a pod of `only`, or for any."""

    def __init__(self, times: int) -> None:
        self.times, self.only = times, frozenset[str]()

    def end(self, who: Callable[[], Collection[Found]]) -> int:
        hit = not self.only or bool(self.only & {found.pod for found in who()})
        # Read after the scan: during it the test may have set it to 0.
        if hit and self.times > 0:
            self.times -= 1
            raise CockpitError("These processes of the cluster did not end: 77.", "State D.")
        return end(who)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> StuckProcesses:
    stuck = StuckProcesses(2)
    monkeypatch.setattr("cockpit.backends.local.pods.pod_end.end", stuck.end)
    monkeypatch.setattr("cockpit.backends.local.pods.pod_end.RETRY_S", 0.05)
    return stuck


def is_sleeping(pod: LivePod) -> bool:
    """Whether the script has started `sleep` in its own place."""
    return Path(f"/proc/{pod.session}/comm").read_text() == "sleep\n"


@asynccontextmanager
async def started(spec: ClusterSpec, count: int = 0) -> AsyncIterator[Pods]:
    """The operator's pods with no operator: the head and `count` workers were started."""
    files = ClusterFiles.of(NAME)
    owned = Pods(spec, files, NoticeWriter(files, time.time), lambda: None)
    try:
        await owned.reconcile(spec)
        owned.gcs_listens = True
        await owned.reconcile(spec)
        assert len(owned.started) == count + 1
        # A process in the middle of its exec is not found.
        await until(lambda: all(is_sleeping(pod) for pod in owned.started))
        yield owned
    finally:
        down(NAME)


async def test_an_overdue_pod_that_does_not_end_is_reported_once_and_replaced_later(
    state: Path, tmp_path: Path, stuck: StuckProcesses
) -> None:
    spec = write(tmp_path, STAYS)
    async with started(spec) as owned:
        old = owned.head
        assert old is not None
        old.kill_at_s = time.time() - 1
        await owned.reconcile(spec)
        await until(lambda: "FailedKillPod" in reasons())
        assert owned.head is old, "it has not ended"
        assert old.kill_at_s is not None
        await owned.reconcile(spec)
        await until(lambda: owned.head is None)
        assert not is_alive(old.process)
        await owned.reconcile(spec)
        assert owned.head not in (None, old)
        assert reasons().count("FailedKillPod") == 1


async def test_a_pod_of_which_something_does_not_end_is_replaced_later(
    state: Path, tmp_path: Path, stuck: StuckProcesses
) -> None:
    spec = write(tmp_path, STAYS)
    async with started(spec) as owned:
        old = owned.head
        assert old is not None
        os.kill(old.session, signal.SIGKILL)
        await until(lambda: old.is_over)
        assert old.pod.reason == "killed by SIGKILL"
        await owned.reconcile(spec)
        assert owned.head not in (None, old)
        assert reasons().count("FailedKillPod") == 1


async def test_a_user_receives_the_error_of_a_pod_that_does_not_end(
    state: Path, tmp_path: Path, stuck: StuckProcesses
) -> None:
    async with started(write(tmp_path, STAYS)) as owned:
        assert owned.head is not None
        with pytest.raises(CockpitError, match="did not end: 77"):
            await owned.delete(owned.head.name, grace_s=0)


async def test_a_worker_restarts_with_the_head_only_once_its_old_processes_have_ended(
    state: Path, tmp_path: Path, stuck: StuckProcesses
) -> None:
    spec = write(tmp_path, STAYS, GroupSpec("gpu", 2))
    async with started(spec, 2) as owned:
        head = owned.head
        assert head is not None
        late, other = (pod for pod in owned.started if not pod.is_head)
        before = late.process
        stuck.times, stuck.only = 1_000_000, frozenset({late.name})
        os.kill(head.session, signal.SIGKILL)
        await until(lambda: "Restarted" in reasons() and "FailedKillPod" in reasons())
        owned.gcs_listens = True
        await owned.reconcile(spec)
        assert other.process is not None
        assert late.process is None
        assert is_alive(before)
        stuck.times = 0
        await until(lambda: reasons().count("Restarted") == 2)
        assert not is_alive(before)
        await owned.reconcile(spec)
        assert is_alive(late.process)
        assert is_alive(other.process), "only the old processes were killed"


async def test_a_pod_that_was_deleted_during_its_start_is_ended_later(
    state: Path, tmp_path: Path, stuck: StuckProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write(tmp_path, STAYS, GroupSpec("gpu", 1))
    start = LivePod.start
    deleted: list[LivePod] = []
    async with started(spec, 1) as owned:
        # The next one is deleted before its process exists.
        async def start_late(
            pod: LivePod,
            argv: Sequence[str],
            environment: Mapping[str, str],
            now: float,
            before: Sequence[str] = (),
        ) -> None:
            await owned.delete(pod.name, 0)
            deleted.append(pod)
            await start(pod, argv, environment, now, before)
            await until(lambda: is_sleeping(pod))

        monkeypatch.setattr(LivePod, "start", start_late)
        await owned.reconcile(replace(spec, groups=(GroupSpec("gpu", 2),)))
        [pod] = deleted
        await until(lambda: not is_alive(pod.process) and not pod.directory.exists())
        assert reasons().count("FailedKillPod") == 1
        assert len(owned.started) == 2


async def test_a_pod_that_wants_a_gpu_waits_for_one_and_reports_it(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6")
    group = GroupSpec("gpu", 2, resources=Resources(gpus=1))
    async with operated(
        write(tmp_path, 'echo "GPUs $CUDA_VISIBLE_DEVICES."; exec sleep 99', group)
    ):
        await until(lambda: any("no free GPU: needs 1" in pod.reason for pod in pods()))
        await until(ready(1))
        (lucky,) = (pod.name for pod in pods() if pod.ready)
        assert await anext(LocalBackend(NAME).logs(lucky, follow=True)) == "GPUs 6."


async def test_a_node_that_ray_loses_makes_its_pod_unready(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.backends.local.pods.readiness.REST_PERIOD_S", 0.2)
    spec = write(tmp_path, STAYS, GroupSpec("gpu", 1))
    async with operated(spec) as head:
        await until(ready(1))
        nodes = head._nodes

        def lost() -> dict[str, object]:
            reported = json.dumps(nodes()).replace('"state": "ALIVE"', '"state": "DEAD"')
            return dict(json.loads(reported))

        monkeypatch.setattr(head, "_nodes", lost)
        await until(lambda: any("declared its node dead" in pod.reason for pod in pods()))


async def test_without_its_token_the_head_reports_nothing(state: Path, tmp_path: Path) -> None:
    spec = write(tmp_path, STAYS)
    async with operated(spec):
        await until(lambda: all(pod.ready for pod in pods(HEAD_GROUP)))
        asked = await asyncio.to_thread(ask_nodes, spec.head_ip, spec.dashboard_port, "wrong")
        assert asked is None


async def test_following_a_log_gives_each_line_once_until_the_pod_no_longer_exists(
    state: Path, tmp_path: Path
) -> None:
    talks = "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.02; done"
    async with operated(write(tmp_path, talks, GroupSpec("gpu", 1))):
        await until(ready(1))
        (pod,) = pods()
        got: list[str] = []
        async with asyncio.timeout(20):
            async for line in LocalBackend(NAME).logs(pod.name, follow=True, lines=3):
                got.append(line)
                if len(got) == 30:
                    await LocalBackend(NAME).scale(ScaleRequest("gpu", 0))
        numbers = [int(line.removeprefix("line ")) for line in got]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_a_cluster_that_does_not_exist_is_reported(state: Path) -> None:
    backend = LocalBackend("nobody")
    events = []
    async for event in backend.watch():
        events.append(event)
        if isinstance(event, SourceHealth):
            break
    cluster, health = events
    assert isinstance(cluster, ClusterSeen)
    assert cluster.health is ClusterHealth.DOWN
    assert isinstance(health, SourceHealth)
    assert not health.ok
    assert not any(capability.allowed for capability in (await backend.capabilities()).values())
    with pytest.raises(UnreachableError, match="no local cluster 'nobody'"):
        await backend.dashboard()
    with pytest.raises(UsageError, match="no local cluster 'nobody'"):
        down("nobody")


def test_cluster_of_another_version_is_deleted(state: Path, tmp_path: Path) -> None:
    spec = write(tmp_path, STAYS)
    files = ClusterFiles.of(NAME)
    paths.replace_file(files.status, "[]")
    paths.replace_file(files.spec, json.dumps({"uid": spec.uid, "later": True}))
    marked = subprocess.Popen(["sleep", "1000"], env={CLUSTER_VARIABLE: spec.uid})
    with pytest.raises(CockpitError, match="is not what this version writes"):
        status(NAME)
    with pytest.raises(ReplacedError, match=f"Local cluster {NAME} was replaced since the plan"):
        down(NAME, uid="of-the-one-before")
    assert marked.poll() is None
    assert down(NAME, uid=spec.uid) == 1
    assert marked.wait() < 0
    assert not files.directory.exists()


def test_an_up_that_was_killed_at_its_very_beginning_is_taken_down(state: Path) -> None:
    local_files.make_private(ClusterFiles.of(NAME).directory)
    left = status(NAME)
    assert left is not None
    assert (left.health, left.operator_alive) == (ClusterHealth.DOWN, False)
    assert down(NAME) == 0
    assert status(NAME) is None


async def test_without_ray_up_explains_how_to_get_it(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CockpitError, match="Ray is not installed") as refused:
        await up(NAME, [])
    assert "pip install" in refused.value.todo
    assert status(NAME) is None


async def test_too_little_room_is_reported_before_anything_is_made(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1))
    with pytest.raises(CockpitError, match="too little free space in /tmp"):
        await up(NAME, [])
    assert status(NAME) is None


async def test_a_failed_start_reports_its_cause_even_if_its_processes_do_not_end(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: object) -> None:
        raise CockpitError("There is no free port.")

    def stuck(name: str) -> int:
        raise CockpitError("1 process of the cluster did not end: 77.")

    monkeypatch.setattr("cockpit.backends.local.lifecycle._write", fails)
    monkeypatch.setattr("cockpit.backends.local.lifecycle.down", stuck)
    lines: list[str] = []
    with pytest.raises(CockpitError, match="no free port"):
        await up(NAME, [GroupSpec("gpu", 1)], progress=lines.append)
    [warning] = lines
    assert "did not end: 77" in warning
    assert f"cockpit local down {NAME}" in warning


def test_a_directory_that_is_not_ours_alone_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "cockpit-0"
    theirs.mkdir(mode=0o755)
    with pytest.raises(NotAllowedError, match="not a directory of yours alone"):
        local_files.make_run_dir(RunFiles(theirs / "abc"))
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(NotAllowedError, match="not a directory of yours alone"):
        local_files.make_run_dir(RunFiles(link / "abc"))
