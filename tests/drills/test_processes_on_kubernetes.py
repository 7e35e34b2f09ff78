"""Faults on the processes of a real run in real containers, one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cockpit.actions.guard import Guard
from cockpit.actions.guard_acts import GuardActions
from cockpit.drills.engine import undo
from cockpit.drills.faults.catalog import fault
from cockpit.drills.faults.fault import Order, Prepared, RankVictim, Victims, parameter_values
from cockpit.guard.policy import Action, Decision, Policy, Target, Trigger, Trouble
from cockpit.insight.hang.types import Confidence
from cockpit.model.cluster import NodeType, Pod
from cockpit.model.drill import Verdict
from cockpit.model.event import RanksDumped
from cockpit.model.run import JobStatus
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.store.store import Store
from tests.cluster.fixtures import RealCluster
from tests.cluster.raycluster import STORAGE
from tests.drills.real_drill import conduct, plan, rank_kill_report
from tests.insight.test_hang import LOOP, dump
from tests.local_cluster import LIGHT_FLAGS

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timed]
OOM_KILLS = "import re,pathlib;print(*[re.findall('oom_kill (.*)',p.read_text())[0] for p in map("
OOM_KILLS += "pathlib.Path,('/sys/fs/cgroup/memory/memory.oom_control',"
OOM_KILLS += "'/sys/fs/cgroup/memory.events')) if p.exists()])"


@pytest.fixture(scope="module")
def session(
    ray_on_kubernetes: RealCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    """With a run of one rank, and a process that stays to send it again when the head is lost."""
    ref = ray_on_kubernetes.ref
    ray_on_kubernetes.wait_ready(1)
    where = ("-n", ref.namespace, "--cluster", ref.name, "--context", ref.context)
    settings = ("max_failures=-1", f"storage_path={STORAGE}/processes")
    argv = ("launch", "checkpointed", "--workers", "1", "--resubmit", "3", "--yes", *where)
    with (
        (tmp_path_factory.mktemp("resubmit") / "said").open("w+") as text,
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "cockpit",
                *argv,
                *LIGHT_FLAGS,
                *(f"--set={each}" for each in settings),
            ],
            env={**os.environ, "KUBECONFIG": str(ray_on_kubernetes.kubeconfig)},
            stdout=text,
            stderr=subprocess.STDOUT,
        ) as stays,
        builder.session_on(ray_on_kubernetes.backend()) as session,
    ):
        try:
            begun = session.wait(lambda store: steps(store, 1) >= 20, 480.0)
            assert begun, Path(text.name).read_text(encoding="utf-8")
            yield session
        finally:
            stays.terminate()
            # Ray keeps the resource request of a stopped run for three minutes, and an elastic run
            # would start without these resources. A new head has no such requests.
            lose_head(session, ray_on_kubernetes)


def lose_head(session: Session, cluster: RealCluster) -> None:
    """Until all pods are ready again: the workers' containers end some time after the head's."""
    session.drain()
    pod = head(session.store)
    before = all_restarts(cluster)
    prepared = fault("gcs-kill").prepare(
        session, Victims((pod,)), Order("drill-g.1", {}, Random(0))
    )
    session.call(applied(session.call(prepared, 30.0)), 30.0)

    def has_restarted(store: Store) -> bool:
        now = all_restarts(cluster)
        return all(now.get(name, count + 1) > count for name, count in before.items())

    assert session.wait(has_restarted, 180.0), (before, all_restarts(cluster))
    cluster.wait_ready(1)
    assert session.wait(lambda store: head(store).ready, 60.0)


def steps(store: Store, attempt: int) -> int:
    run = current_run(store)
    if run is None or run.attempt is None or run.attempt.number != attempt:
        return 0
    return run.attempt.last_step or 0


def trains(store: Store) -> bool:
    """Return whether the newest job of the run trains: one that the head has just lost does not."""
    run = current_run(store)
    job = store.jobs.get(run.submission_id) if run is not None else None
    if run is None or run.attempt is None or job is None or job.status is not JobStatus.RUNNING:
        return False
    return head(store).ready and run.attempt.ended_s is None and (run.attempt.last_step or 0) > 0


def run_of(store: Store) -> RunView:
    run = current_run(store)
    assert run is not None
    return run


def the_rank(session: Session) -> RankVictim:
    session.drain()
    view = run_of(session.store).rank_view(0)
    pod = pod_of_rank(session.store, view)
    assert pod is not None
    assert view.placement is not None
    return RankVictim(0, pod.name, view.placement.pid)


def in_pod(session: Session, pod: str, *argv: str) -> str:
    return session.call(session.backend.exec(pod, argv), 30.0).stdout.strip()


def restarts(cluster: RealCluster, pod: str) -> int:
    return all_restarts(cluster)[pod]


def all_restarts(cluster: RealCluster) -> dict[str, int]:
    """By the name of a pod, how often its containers were restarted."""
    statuses: dict[str, list[Any]] = {
        raw["metadata"]["name"]: raw["status"].get("containerStatuses", [])
        for raw in cluster.pods()
    }
    return {
        name: sum(int(status["restartCount"]) for status in of) for name, of in statuses.items()
    }


def how_it_ended(cluster: RealCluster, pod: str) -> str:
    """The reason for the container's end before its last restart; empty without one."""
    (raw,) = (raw for raw in cluster.pods() if raw["metadata"]["name"] == pod)
    (status,) = raw["status"]["containerStatuses"]
    return str(status["lastState"].get("terminated", {}).get("reason", ""))


async def applied(prepared: Prepared) -> None:
    await prepared.apply()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("slow-rank", {"by": "hog"}),
        pytest.param("cpu-hog", {"processes": "0"}, marks=pytest.mark.nightly),
    ],
)
def test_busy_processes_take_a_ranks_cores_and_go(
    name: str, given: dict[str, str], session: Session, tmp_path: Path
) -> None:
    victim = the_rank(session)
    seen: list[list[str]] = []

    def look(store: Store) -> None:
        seen.append(in_pod(session, victim.pod, "ls", "/tmp").split())
        argv = "import pathlib,json;k=json.loads(next(pathlib.Path('/tmp').glob('cockpit-*'))"
        argv += ".read_text())['keeper'].split(':')[0];"
        argv += "print(pathlib.Path(f'/proc/{k}/task/{k}/children').read_text())"
        seen.append(in_pod(session, victim.pod, "python", "-c", argv).split())

    asked = plan(name, "rank:0", recover_s=1, for_s=600, **given)
    record = conduct(session, asked, tmp_path, observe=look, abort=True)
    assert record.verdict is Verdict.ABORTED, record
    assert any(name.startswith("cockpit-drill-") for name in seen[0])
    assert len(seen[1]) == 1, "the container may use one core"
    assert "cockpit-drill-" not in in_pod(session, victim.pod, "ls", "/tmp")


def test_memory_runs_out_and_the_rank_is_who_dies(
    session: Session, ray_on_kubernetes: RealCluster, tmp_path: Path
) -> None:
    victim = the_rank(session)
    kills = int(in_pod(session, victim.pod, "python", "-c", OOM_KILLS))
    record = conduct(session, plan("memory-hog", victim.pod, for_s=60, fill_s=3), tmp_path)
    (recovery,) = record.recoveries
    assert recovery.recovered, (record.why, record.notes, run_of(session.store).attempts)
    # Usually only the rank. A busy kernel frees memory slowly, and kills other processes of the
    # container too, even the first one.
    killed = int(in_pod(session, victim.pod, "python", "-c", OOM_KILLS)) - kills
    ended = how_it_ended(ray_on_kubernetes, victim.pod)
    assert killed > 0 or ended == "OOMKilled" or "out of memory" in recovery.reason, (killed, ended)
    assert the_rank(session).pod == victim.pod, "the pod has outlived it"
    assert "cockpit-drill-" not in in_pod(session, victim.pod, "ls", "/tmp")


def test_report_of_a_killed_rank_is_that_of_other_backends(
    session: Session, tmp_path: Path
) -> None:
    record = conduct(session, plan("rank-kill", "rank:0"), tmp_path)
    assert rank_kill_report(record).ranks_after == 1


def test_a_killed_container_is_restarted_with_nothing_left_to_undo(
    session: Session, ray_on_kubernetes: RealCluster, tmp_path: Path
) -> None:
    victim = the_rank(session)
    before = restarts(ray_on_kubernetes, victim.pod)
    kind = fault("rank-freeze")
    order = Order("drill-k.1", parameter_values(kind, {"for_s": "600"}), Random(0))
    victims = Victims((session.store.pods[victim.pod],), (victim,))
    frozen = session.call(fault("rank-freeze").prepare(session, victims, order), 30.0)
    session.call(applied(frozen), 30.0)
    status = in_pod(session, victim.pod, "grep", "State", f"/proc/{victim.pid}/status")
    assert "T (stopped)" in status

    record = conduct(session, plan("container-kill", victim.pod), tmp_path)
    (recovery,) = record.recoveries
    assert recovery.recovered, record
    assert restarts(ray_on_kubernetes, victim.pod) > before
    text = session.call(undo.undo_effect(session.backend, frozen.undo[0]), 30.0)
    assert text.startswith("done: ")


@pytest.mark.nightly  # Action.RESTART, on a real hang: tests/guard/test_guard_on_local.py
@pytest.mark.parametrize("action", [Action.REPLACE])
def test_guard_ends_the_rank_of_a_hang(
    action: Action, session: Session, ray_on_kubernetes: RealCluster
) -> None:
    """The dump of the hang is made up, and the act is real."""
    victim, before = the_rank(session), max(run_of(session.store).attempts)
    uid = session.store.pods[victim.pod].uid
    policy = Policy(hang=action, confidence=Confidence.MEDIUM)
    lines: list[str] = []
    guard = Guard(session, GuardActions(session), policy, lines.append, poll_s=0.1)
    watching = session.submit(guard.watch())
    later_s = session.clock() + 1_000.0
    idle = dump(0, 0, 1, waits=False, at_s=later_s, idle_s=500.0, reached=(), collectives=())
    session.dispatch(
        RanksDumped(
            at_s=later_s,
            source="telemetry",
            run_id=run_of(session.store).id,
            attempt=before,
            dumps=(idle,),
            stacks=(LOOP,),
        )
    )
    assert session.wait(lambda store: steps(store, before + 1) >= 20, 300.0), lines
    guard.end()
    assert session.wait(lambda store: watching.done(), 60.0)
    assert any("done: " in line for line in lines), lines
    after = the_rank(session)
    assert after.pid != victim.pid or after.pod != victim.pod
    if action is Action.REPLACE:
        assert uid not in {pod.uid for pod in session.store.pods.values() if pod.ready}
        ray_on_kubernetes.wait_ready(1)


def test_guard_cordons_a_kubernetes_node(session: Session) -> None:
    victim = the_rank(session)
    node = session.store.kubernetes_nodes[session.store.pods[victim.pod].host]
    target = Target(0, victim.pid, victim.pod, "", node.name, node.uid)
    trouble = Trouble(
        Trigger.REPEATED_FAILURE, "k", "r", "r", 1, "It failed.", Confidence.HIGH, (target,)
    )
    actions = GuardActions(session)
    decision = Decision(trouble, Action.CORDON, "by the policy")
    assert session.call(actions.act(decision), 30.0).endswith(f"uncordon {node.name}")
    try:
        assert session.wait(lambda store: store.kubernetes_nodes[node.name].cordoned, 30.0)
    finally:
        session.call(actions.cordon(node.name, False), 30.0)


def test_a_killed_gcs_ends_the_heads_container_and_the_run_is_sent_again(
    session: Session, ray_on_kubernetes: RealCluster, tmp_path: Path
) -> None:
    """The driver dies with the head, and the new head does not know the job."""
    assert session.wait(trains, 420.0), run_of(session.store)
    pod, run = head(session.store), run_of(session.store)
    before = restarts(ray_on_kubernetes, pod.name)
    attempts, job = max(run.attempts), run.submission_id
    record = conduct(session, plan("gcs-kill", "head", recover_s=420), tmp_path)
    (recovery,) = record.recoveries
    assert restarts(ray_on_kubernetes, pod.name) > before
    assert recovery.recovered, (record.why, record.notes, run_of(session.store).attempts)
    after = run_of(session.store)
    assert (after.name, max(after.attempts)) == (run.name, attempts + 1), "the same run goes on"
    assert after.submission_id != job


def head(store: Store) -> Pod:
    return next(pod for pod in store.pods.values() if pod.node_type is NodeType.HEAD)
