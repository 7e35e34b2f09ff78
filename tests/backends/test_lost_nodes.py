"""A run with checkpoints in memory that loses one whole node, and then two at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cockpit.backends.local import GroupSpec, LocalBackend
from cockpit.launch import submission
from cockpit.model.cluster import Pod
from cockpit.model.event import Notice
from cockpit.model.recovery import FAST
from cockpit.session.session import Session
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.store.store import Store
from tests.local_cluster import LIGHT_RUN, running_job

# tests/training/test_memory_on_ray.py kills a rank, and test_checkpoints_in_memory.py holders.
pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.ray]

WAIT_S = 600.0
RANKS, PODS = 2, 4
"""Two pods are spare, so that no restart waits for a replacement."""
EVERY = 1
SAVED_EVERY = 100
STEPS = 60
"""That an attempt makes before a fault."""


@dataclass(frozen=True, slots=True)
class Stage:
    session: Session
    backend: LocalBackend

    def notices(self, reason: str) -> list[str]:
        return [notice.message for notice in self._notices() if notice.reason == reason]

    def _notices(self) -> list[Notice]:
        return list(self.session.store.notices)

    def settle(self, resumes: int) -> int:
        """Wait until the run has resumed `resumes` times, made STEPS steps, and begun to make
        checkpoints in memory, and all pods are ready.

        Returns the newest step.
        """

        def settled(store: Store) -> bool:
            run = current_run(store)
            attempt = run.attempt if run else None
            return (
                run is not None
                and attempt is not None
                and attempt.first_step is not None
                and attempt.last_step is not None
                and attempt.last_step >= max(SAVED_EVERY, attempt.first_step) + STEPS
                and len(self.notices("Resumed")) == resumes
                and len(self.notices("CheckpointsInMemoryBegin")) == resumes + 1
                and sum(pod.ready for pod in store.pods.values()) == PODS + 1
            )

        assert self.session.wait(settled, WAIT_S), (
            current_run(self.session.store),
            self._notices(),
        )
        return self.step()

    def step(self) -> int:
        run = current_run(self.session.store)
        assert run is not None
        assert run.attempt is not None
        return run.attempt.last_step or 0

    def pods(self, *ranks: int) -> dict[str, Pod]:
        """By name, those in which these ranks run: one each."""
        run = current_run(self.session.store)
        assert run is not None
        pods = [pod_of_rank(self.session.store, run.ranks[rank]) for rank in ranks]
        found = {pod.name: pod for pod in pods if pod is not None}
        assert len(found) == len(ranks)
        return found

    def kill_nodes(self, *ranks: int) -> None:
        """Kill all processes of the pods in which these ranks run, with Ray's and the holders."""
        for pod in self.pods(*ranks).values():
            self.session.call(self.backend.delete_pod(pod.name, uid=pod.uid, grace_s=0.0))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    settings = LIGHT_RUN | {
        "storage_path": str(tmp_path),
        "placement": "strict_spread",
        "memory_every_steps": str(EVERY),
        "checkpoint_every_steps": str(SAVED_EVERY),
        "save_every_epochs": "100000",
        "max_failures": "-1",
    }
    spec = submission.bundled_spec("checkpointed", settings, RANKS)
    group = GroupSpec("workers", replicas=PODS, min=0, max=PODS)
    with running_job(spec, "lost", [group], FAST) as (session, backend):
        yield Stage(session, backend)


def test_run_resumes_from_memory_after_one_lost_node_and_from_the_storage_after_two(
    stage: Stage,
) -> None:
    before = stage.settle(resumes=0)
    survivor = stage.pods(0).keys()
    stage.kill_nodes(1)
    stage.settle(resumes=1)
    (one,) = stage.notices("Resumed")
    found = re.fullmatch(r"rank 0: resumes from memory, step (\d+)", one)
    assert found, one
    assert int(found[1]) >= before - 2 * EVERY, "at most two steps are lost"
    assert int(found[1]) % SAVED_EVERY, "the storage does not have it"

    before = stage.step()
    holders = len(survivor | stage.pods(0, 1).keys())  # both ranks may be on spare pods now
    stage.kill_nodes(0, 1)
    stage.settle(resumes=2)
    two = stage.notices("Resumed")[-1]
    found = re.fullmatch(
        r"rank 0: resumes from the storage, step (\d+): "
        rf"2 of {holders} nodes with copies in memory are lost",
        two,
    )
    assert found, two
    assert int(found[1]) % SAVED_EVERY == 0
    assert before - int(found[1]) < 2 * SAVED_EVERY
