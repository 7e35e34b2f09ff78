"""The storage of a real run fails, and the run continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.actions.jobs import JobActions
from cockpit.backends.local import GroupSpec
from cockpit.drills.plan.plan import DrillPlan, FaultSpec, TargetSpec, Timeouts
from cockpit.model.drill import Verdict
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from tests.drills.real_drill import conduct, plan
from tests.local_cluster import LIGHT_RUN, running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timed]

START_TIMEOUT_S = 360.0


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A run of two ranks that makes a checkpoint every few seconds."""
    storage = tmp_path_factory.mktemp("storage")
    workers = [GroupSpec("workers", replicas=2, min=0, max=2)]
    with running_cluster("storage", workers) as backend, builder.session_on(backend) as session:
        settings = LIGHT_RUN | {
            "model": "convnet",  # whose checkpoint is too large for a full disk
            "width": "64",
            "min_step_s": "0.2",
            "batch_size": "64",
            "max_failures": "-1",
            "storage_path": str(storage),
        }
        session.call(JobActions.on(session).launch("checkpointed", settings))
        assert session.wait(lambda store: checkpoints(store) >= 3, START_TIMEOUT_S)
        yield session


def going(store: Store) -> RunView:
    run = current_run(store)
    assert run is not None
    return run


def checkpoints(store: Store) -> int:
    run = current_run(store)
    return len(run.checkpoints) if run is not None else 0


@pytest.fixture(autouse=True)
def at_work(session: Session) -> None:
    """Two more checkpoints from now on: the run is well again."""
    now = checkpoints(session.store)
    assert session.wait(lambda store: checkpoints(store) >= now + 2, START_TIMEOUT_S)


@pytest.mark.nightly  # its script: tests/drills/test_storage_scripts.py
def test_a_busy_disk_ends_no_attempt(session: Session, tmp_path: Path) -> None:
    storage = Path(going(session.store).checkpoints[-1][1].path).parent
    record = conduct(session, plan("storage-slow", for_s=3, writers=2, recover_s=300), tmp_path)
    assert record.verdict is Verdict.PASSED, record
    assert record.recoveries[0].restarts == 0, record
    assert not list(storage.parent.glob(".cockpit-*")), record


@pytest.mark.nightly  # another fault of the storage: test_a_run_outlives_a_full_disk
def test_a_run_outlives_a_storage_that_takes_nothing(session: Session, tmp_path: Path) -> None:
    attempt = going(session.store).attempt
    assert attempt is not None
    storage = Path(going(session.store).checkpoints[-1][1].path).parent
    seen: list[str] = []

    def look(store: Store) -> None:
        try:
            (storage / "probe").mkdir()
        except OSError as error:
            seen.append(type(error).__name__)

    asked = plan("storage-read-only", for_s=8, recover_s=300)
    record = conduct(session, asked, tmp_path, observe=look)
    assert seen == ["PermissionError"]
    assert record.verdict is Verdict.PASSED, record
    assert (storage / "probe").exists() is False


def test_a_run_outlives_a_full_disk(session: Session, tmp_path: Path) -> None:
    before = going(session.store).attempt
    assert before is not None
    (before_s, _), (last_s, _) = going(session.store).checkpoints[-2:]
    for_s = max(8.0, 3 * (last_s - before_s))  # a checkpoint is due in it
    asked = plan("storage-full", "rank:0", for_s=for_s, recover_s=300)
    record = conduct(session, asked, tmp_path)
    assert record.verdict is Verdict.PASSED, record
    assert record.recoveries[0].restarts >= 1, "a checkpoint could not be written"


@pytest.mark.parametrize(
    "damage",
    ["checkpoint-corrupt", pytest.param("checkpoint-delete", marks=pytest.mark.nightly)],
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    damage: str, session: Session, tmp_path: Path
) -> None:
    faults = (
        FaultSpec(damage, {"for_s": "45"}),
        FaultSpec("rank-kill", {}, TargetSpec("rank:1")),
    )
    asked = DrillPlan("both", faults, seed=1, timeouts=Timeouts(recover_s=300))
    kept_aside = Path(going(session.store).checkpoints[-1][1].path).parent / "damaged"
    before = set(kept_aside.glob("*"))
    for _ in range(3):  # another checkpoint may be saved between the damage and the kill
        record = conduct(session, asked, tmp_path)
        assert record.verdict is Verdict.PASSED, record
        killed = next(one for one in record.recoveries if one.drill.fault == "rank-kill")
        assert killed.steps_lost is not None
        if set(kept_aside.glob("*")) - before:
            return
    raise AssertionError("none was passed over, and kept to look into")
