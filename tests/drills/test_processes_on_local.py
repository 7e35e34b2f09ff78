"""Faults on the processes of a real run on a local cluster, one after the other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median

import pytest

from cockpit.backends.local import GroupSpec, LocalBackend
from cockpit.cli.main import main
from cockpit.config import paths
from cockpit.drills.engine import undo
from cockpit.drills.engine.interrupted import Undone, undo_entries
from cockpit.drills.engine.journal import Journal
from cockpit.drills.faults.catalog import fault
from cockpit.drills.faults.fault import Order, Prepared, RankVictim, Victims, parameter_values
from cockpit.drills.plan.plan import DrillPlan, FaultSpec, Timeouts
from cockpit.drills.pod_scripts.linux.process import Process, is_alive, living
from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.drill import Verdict
from cockpit.model.error import CockpitError
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.store.store import Store
from tests.drills.real_drill import conduct, plan, rank_kill_report
from tests.drills.script import eventually
from tests.local_cluster import LIGHT_FLAGS, running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.ray]

WAIT_S = 240.0
NAME = "processes"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """On a cluster with a run of two ranks that lasts longer than all tests."""
    results = tmp_path_factory.mktemp("results")
    with running_cluster(NAME, [GroupSpec("workers", replicas=2, min=0, max=2)]) as backend:
        settings = [*LIGHT_FLAGS, f"--set=storage_path={results}", "--workers=2"]
        assert main(["launch", "checkpointed", *settings, "--set=max_failures=-1"]) == 0
        with builder.session_on(backend) as session:
            assert session.wait(lambda store: steps(store, attempt=1) >= 20, 480.0)
            yield session


def run_of(store: Store) -> RunView:
    run = current_run(store)
    assert run is not None
    return run


def steps(store: Store, *, attempt: int) -> int:
    """How many both ranks have done in this attempt, which has to be the newest."""
    run = current_run(store)
    if run is None or run.attempt is None or run.attempt.number != attempt:
        return 0
    return run.attempt.last_step or 0 if len(run.attempt.placements) == 2 else 0


def rank(session: Session, number: int) -> RankVictim:
    session.drain()
    view = run_of(session.store).rank_view(number)
    pod = pod_of_rank(session.store, view)
    assert pod is not None
    assert view.placement is not None
    return RankVictim(number, pod.name, view.placement.pid)


def identity(pid: int) -> Process:
    found = living(pid)
    assert found is not None
    return found


def state(process: Process) -> str:
    """One letter of proc(5): T is stopped."""
    text = Path(f"/proc/{process.pid}/stat").read_text()
    return text[text.rindex(")") + 2]


def on_disk(session: Session, pod: str) -> list[Path]:
    """The active effects in a local pod."""
    where = session.call(session.backend.exec(pod, ("pwd",)), 30.0).stdout.strip()
    return list(Path(where).glob("cockpit-*.json"))


def test_a_frozen_rank_stops_all_and_runs_again_when_the_drill_is_aborted(
    session: Session, tmp_path: Path
) -> None:
    victim = rank(session, 1)
    process = identity(victim.pid)
    seen: list[int] = []

    def look(store: Store) -> None:
        eventually(lambda: state(process) == "T")  # a signal acts once the process has a CPU
        assert len(on_disk(session, victim.pod)) == 1
        seen.append(run_of(store).step or 0)

    asked = plan("rank-freeze", "rank:1", for_s=600, recover_s=1)
    record = conduct(session, asked, tmp_path, observe=look, abort=True)
    assert record.verdict is Verdict.ABORTED, record
    assert state(process) != "T"
    assert on_disk(session, victim.pod) == []
    assert session.wait(lambda store: (run_of(store).step or 0) > seen[0] + 5, WAIT_S)
    assert run_of(session.store).attempts.keys() == {1}, "Ray has not noticed"


@pytest.mark.nightly  # the fault: tests/drills/test_processes_on_kubernetes.py
def test_a_slow_rank_is_waited_for_by_the_others(session: Session, tmp_path: Path) -> None:
    took: list[float] = []

    def look(store: Store) -> None:
        before = list(run_of(store).rank_view(0).curves["step_time_s"].values)[-5:]
        reported = run_of(store).samples_seen
        assert session.wait(lambda s: run_of(s).samples_seen >= reported + 14, WAIT_S)
        after = list(run_of(store).rank_view(0).curves["step_time_s"].values)[-3:]
        took.extend((median(before), median(after)))

    asked = plan("slow-rank", "rank:1", for_s=15, fraction=0.95, recover_s=1)
    record = conduct(session, asked, tmp_path, observe=look)
    assert record.verdict is not Verdict.BROKEN, record
    assert took[1] > 1.5 * took[0], "rank 0 is not slowed down, and yet its steps take longer"
    assert on_disk(session, rank(session, 1).pod) == []


def test_a_killed_rank_ends_the_attempt_and_is_not_hit_again(
    session: Session, tmp_path: Path
) -> None:
    victim = rank(session, 0)
    process = identity(victim.pid)
    record = conduct(session, plan("rank-kill", "rank:0"), tmp_path)
    assert not is_alive(process)
    assert rank_kill_report(record).drill.ranks == (0,)
    assert run_of(session.store).attempts.keys() == {1, 2}
    again = fault("rank-kill").prepare(
        session, Victims((), (victim,)), Order("drill-x.1", {}, Random(0))
    )
    with pytest.raises(CockpitError, match=r"Rank 0 .* is not there") as caught:
        session.call(again, 30.0)
    assert "has ended" in caught.value.why or "no rank" in caught.value.why


def test_a_killed_raylet_ends_its_pod_alone(session: Session, tmp_path: Path) -> None:
    victim, other = rank(session, 1), rank(session, 0)
    assert victim.pod != other.pod
    record = conduct(session, plan("raylet-kill", victim.pod), tmp_path)
    (recovery,) = record.recoveries
    assert recovery.recovered, record
    assert run_of(session.store).attempts.keys() == {1, 2, 3}
    assert session.wait(lambda store: ready_workers(store) == 2, WAIT_S)
    names = {pod.name for pod in session.store.pods.values() if pod.ready}
    assert victim.pod not in names
    assert other.pod in names


async def applied(prepared: Prepared) -> None:
    await prepared.apply()


def ready_workers(store: Store) -> int:
    workers = (pod for pod in store.pods.values() if pod.node_type is NodeType.WORKER)
    return sum(pod.ready for pod in workers)


async def all_undone(session: Session, journal: Journal) -> list[Undone]:
    entries = journal.orphans()
    return [one async for one in undo_entries(session.backend, journal, entries)]


def test_a_rank_runs_again_though_cockpit_was_killed_while_it_was_frozen(
    session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    assert session.wait(lambda store: steps(store, attempt=3) > 0, WAIT_S)
    victim = rank(session, 1)
    process = identity(victim.pid)
    argv = ("--local", "--cluster", NAME, "drill", "run", "rank-freeze", "--target", "rank:1")
    cockpit = subprocess.Popen(
        [sys.executable, "-m", "cockpit.cli.main", *argv, "--for", "5", "--yes"]
    )
    try:
        eventually(lambda: state(process) == "T", WAIT_S)
        journal = Journal(paths.state_dir() / "drills" / "journal")
        eventually(lambda: all(entry.answered for entry in journal.entries()))
    finally:
        cockpit.kill()
        cockpit.wait()
    assert state(process) == "T"
    (left,) = journal.orphans()
    eventually(lambda: state(process) != "T")
    (undone,) = session.call(all_undone(session, journal), 30.0)
    assert undone == Undone(left, (f"done: {left.undo[0].text}",))
    assert journal.entries() == []
    assert on_disk(session, victim.pod) == []


@pytest.mark.nightly  # on Kubernetes: tests/drills/test_faults_on_kubernetes.py
def test_a_drained_node_is_left_in_time_and_its_pod_is_replaced(
    session: Session, tmp_path: Path
) -> None:
    """Ray declares it dead at the deadline, and its pod would not be replaced."""
    victim = rank(session, 1)
    ip = session.store.pods[victim.pod].ip
    assert session.wait(lambda s: any(n.ip == ip and n.alive for n in s.nodes.values()), WAIT_S)
    record = conduct(session, plan("node-drain", victim.pod, deadline_s=3), tmp_path)
    assert record.verdict is Verdict.PASSED, (record.why, record.notes)
    (recovery,) = record.recoveries
    assert recovery.budget == "max_preemption_failures"
    assert any(f"replace {victim.pod}" in note for note in record.notes)
    assert session.wait(lambda store: ready_workers(store) == 2, WAIT_S)
    assert not is_living(session.store, victim.pod)


@pytest.mark.nightly  # two kills: tests/drills/test_smoke_gameday.py
def test_kills_at_random_are_each_measured_and_the_run_outlives_them(
    session: Session, tmp_path: Path
) -> None:
    before = max(run_of(session.store).attempts)
    given = {"fault": "rank-kill", "for_s": "14", "mtbf_s": "5"}
    spec = FaultSpec("random-kills", given)
    asked = DrillPlan("random", (spec,), seed=1, timeouts=Timeouts(recover_s=300.0))
    record = conduct(session, asked, tmp_path)
    assert record.verdict is Verdict.PASSED, (record.why, record.notes)
    assert record.fault == "random-kills"
    assert {drill.fault for drill in record.drills} == {"rank-kill"}
    assert len(record.recoveries) == len(record.drills) >= 1
    assert record.recoveries[-1].recovered
    assert max(run_of(session.store).attempts) > before


@pytest.mark.nightly  # in a container: tests/drills/test_processes_on_kubernetes.py
def test_frozen_rank_of_a_deleted_pod_needs_no_undo(
    session: Session,
) -> None:
    victim = rank(session, 1)
    kind = fault("rank-freeze")
    order = Order("drill-y.1", parameter_values(kind, {"for_s": "600"}), Random(0))
    victims = Victims((session.store.pods[victim.pod],), (victim,))
    prepared = session.call(fault("rank-freeze").prepare(session, victims, order), 30.0)
    session.call(applied(prepared), 30.0)
    uid = session.store.pods[victim.pod].uid
    session.call(session.backend.delete_pod(victim.pod, uid=uid, grace_s=0), 30.0)
    assert session.wait(lambda store: not is_living(store, victim.pod), 30.0)
    text = session.call(undo.undo_effect(session.backend, prepared.undo[0]), 30.0)
    assert text.startswith(f"ended with pod {victim.pod}")


def is_living(store: Store, name: str) -> bool:
    pod = store.pods.get(name)
    return pod is not None and pod.phase is not PodPhase.FAILED


@pytest.mark.parametrize(("name", "said"), [("dashboard-kill", "dashboard"), ("head-kill", "")])
def test_fault_that_ends_the_head_is_announced_and_applied(
    session: Session, name: str, said: str
) -> None:
    """A local head is replaced by another one of the same cluster."""
    assert session.wait(
        lambda store: any(is_ready_head(pod) for pod in store.pods.values()), WAIT_S
    )
    before = next(pod for pod in session.store.pods.values() if is_ready_head(pod))
    order = Order("drill-z.1", parameter_values(fault(name), {}), Random(0))
    prepared = session.call(fault(name).prepare(session, Victims((before,)), order), 30.0)
    assert "head" in prepared.lines[0]
    session.call(applied(prepared), 30.0)
    assert session.wait(lambda store: not is_living(store, before.name), 30.0)
    pod = session.store.pods.get(before.name)
    assert said in (pod.reason if pod else "")
    assert isinstance(session.backend, LocalBackend)


def is_ready_head(pod: Pod) -> bool:
    return pod.node_type is NodeType.HEAD and pod.ready and pod.phase is not PodPhase.FAILED
