"""The fast profile on a real cluster: one elastic run that loses a rank, a frozen rank, a pod."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cockpit.backends.local import GroupSpec, LocalBackend, status
from cockpit.backends.local.files import RunFiles
from cockpit.backends.local.pods.process import find
from cockpit.launch import submission
from cockpit.launch.environment import JobEnvironment
from cockpit.model.recovery import FAST
from cockpit.session.session import Session
from cockpit.store.run import AttemptView, RunView
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.store.store import Store
from tests.local_cluster import LIGHT_RUN, running_job

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timed]

WAIT_S = 300.0
FROZEN_S = 8
"""In place of the profile's 25, so that the test is over sooner."""
GROWS_S = 10.0
"""After a pod has been replaced. Ray's own check is 60 s after the restart."""
STEPS_LOST = 30
"""Fewer than between two checkpoints: the run grows right after one."""


@dataclass(frozen=True, slots=True)
class Stage:
    session: Session
    backend: LocalBackend

    @property
    def run(self) -> RunView:
        run = current_run(self.session.store)
        assert run is not None
        return run

    @property
    def attempt(self) -> AttemptView:
        attempt = self.run.attempt
        assert attempt is not None
        return attempt

    def pids(self) -> set[int]:
        return {placement.pid for placement in self.attempt.placements}

    def barriers(self) -> set[int]:
        """The actors in which the ranks wait for each other."""
        return {pid for pid in self.processes("head") if "ray::Barriers" in _title(pid)}

    def processes(self, kind: str = "worker") -> dict[int, str]:
        """The processes of the pods of this kind, with their pods."""
        cluster = status(self.backend.ref.name)
        assert cluster is not None
        assert cluster.spec is not None
        uid = cluster.spec.uid
        found = find(uid, (), str(RunFiles.of(uid).directory))
        return {one.id.pid: one.pod for one in found if kind in one.pod}

    def pods_with_spares(self) -> set[str]:
        """The pods in which a fork of the fork server is idle."""
        found = self.processes()
        return {
            pod
            for pid, pod in found.items()
            if _title(pid).startswith("ray::IDLE") and _is_fork(pid)
        }

    def settle(self, ranks: int, *, spares: bool = True) -> None:
        """Wait until the attempt has a step and a checkpoint, and each pod a spare."""

        def settled(store: Store) -> bool:
            run = current_run(store)
            attempt = run.attempt if run else None
            return (
                run is not None
                and attempt is not None
                and len(attempt.placements) == ranks
                and attempt.first_step_s is not None
                and (run.checkpoint_s or 0.0) > attempt.first_step_s
                and (not spares or len(self.pods_with_spares()) >= ranks)
            )

        assert self.session.wait(settled, WAIT_S), (self.run, self.pods_with_spares())

    def niceness(self) -> set[int]:
        return {os.getpriority(os.PRIO_PROCESS, pid) for pid in self.pids()}

    def runs_on_spares(self) -> bool:
        """Whether the ranks are forks of the fork servers."""
        return all(_is_fork(pid) for pid in self.pids())

    def comes_back(self, after: int) -> AttemptView:
        """The attempt after this one, once it has stepped."""

        def stepped(store: Store) -> bool:
            new = self.run.attempts.get(after + 1)
            return new is not None and new.first_step_s is not None

        assert self.session.wait(stepped, WAIT_S), self.run.attempts
        return self.run.attempts[after + 1]


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _is_fork(pid: int) -> bool:
    """Whether its parent is a fork server: one that a worker started, or that imported early."""
    parent = _title(_parent(pid))
    return "training.recovery.forkserver" in parent or "training.recovery.early_imports" in parent


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    group = GroupSpec("workers", replicas=2, min=0, max=2)
    settings = LIGHT_RUN | {"storage_path": str(tmp_path), "min_workers": "1"}
    spec = submission.bundled_spec(
        "checkpointed",
        settings,
        2,
        environment=JobEnvironment({"RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S": str(FROZEN_S)}),
    )
    with running_job(spec, "fast", [group], FAST) as (session, backend):
        yield Stage(session, backend)


def test_a_run_comes_back_on_spares_from_a_dead_rank_a_frozen_rank_and_a_lost_pod(
    stage: Stage,
) -> None:
    stage.settle(ranks=2)
    assert stage.attempt.number == 1, stage.attempt
    assert stage.runs_on_spares(), "their fork servers started with them"
    barriers, niceness = stage.barriers(), stage.niceness()
    assert len(barriers) == 1
    os.kill(stage.attempt.placements[1].pid, signal.SIGKILL)
    second = stage.comes_back(after=1)
    assert len(second.placements) == 2, "both nodes live"
    assert stage.runs_on_spares()
    assert stage.niceness() == niceness

    stage.settle(ranks=2)
    frozen_s = stage.session.clock()
    os.kill(stage.attempt.placements[0].pid, signal.SIGSTOP)
    third = stage.comes_back(after=2)
    assert second.ended_s is not None
    assert second.ended_s - frozen_s > FROZEN_S / 2, "it was not taken for frozen at once"
    assert len(third.placements) == 2
    assert stage.runs_on_spares()

    stage.settle(ranks=2)
    pod = pod_of_rank(stage.session.store, stage.run.ranks[1])
    assert pod is not None
    stage.session.call(stage.backend.delete_pod(pod.name, uid=pod.uid, grace_s=0.0))
    fourth = stage.comes_back(after=3)
    assert len(fourth.placements) == 1, "it goes on at once with the one that is left"
    assert stage.runs_on_spares()
    assert stage.barriers() == barriers, "no attempt has started one"


# The test above loses a pod too; tests/training/test_growth.py has Ray's scaling policy alone.
@pytest.mark.nightly
def test_elastic_run_grows_within_seconds_after_its_pod_was_replaced(stage: Stage) -> None:
    stage.settle(ranks=2, spares=False)  # they shorten the restart, not the wait for it
    pod = pod_of_rank(stage.session.store, stage.run.ranks[1])
    assert pod is not None
    stage.session.call(stage.backend.delete_pod(pod.name, uid=pod.uid, grace_s=0.0))
    left = stage.comes_back(after=1)
    assert len(left.placements) == 1

    def is_replaced(store: Store) -> bool:
        return sum(one.ready for one in store.pods.values()) == 3

    assert stage.session.wait(is_replaced, WAIT_S)
    ready_s = stage.session.clock()
    grown = stage.comes_back(after=2)
    assert len(grown.placements) == 2
    assert left.ended_s is not None
    assert grown.first_step_s is not None
    ends_s, steps_s = left.ended_s - ready_s, grown.first_step_s - ready_s
    print(f"after the pod was ready: ends {ends_s:.1f} s, steps {steps_s:.1f} s", os.getloadavg())
    assert ends_s < GROWS_S
    assert left.last_step is not None
    assert grown.first_step is not None
    assert left.last_step - grown.first_step < STEPS_LOST
