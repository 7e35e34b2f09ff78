"""Where a run resumes on a real Ray, after an untimely kill or a damaged disk."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training.cluster import Cluster, Outcome, bodies, drive
from training.checkpoint.manifest import check
from training.checkpoint.storage import PREFIX
from training.telemetry.names import CALLBACK
from training.telemetry.wire import AttemptEnd, AttemptStart, Notice, Record, Report

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(2400)]

JOB = ["-m", "training.jobs.checkpointed", "--width", "32", "--checkpoint-every-steps", "20"]
EPOCHS = ["--epochs", "12", "--num-to-keep", "8"]
LAST = 490
"""During the eleventh epoch of 45 steps, and long after both kills."""


def train(cluster: Cluster, name: str, *argv: str) -> list[str]:
    storage = ["--storage-path", str(cluster.directory / "results"), "--run-name", name]
    return [*JOB, *EPOCHS, *storage, *argv]


def checkpoints(cluster: Cluster, name: str) -> list[Path]:
    found = (cluster.directory / "results" / name).glob(f"{PREFIX}*")
    return sorted(path for path in found if path.is_dir())


def reports(records: list[Record]) -> list[Report]:
    return bodies(records, Report)


def starts(records: list[Record]) -> list[AttemptStart]:
    return bodies(records, AttemptStart)


def by_step(records: list[Record]) -> dict[int, tuple[float, float]]:
    return {
        int(report.metrics["step"]): (report.metrics["loss"], report.metrics["accuracy"])
        for report in reports(records)
    }


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


class Trouble:
    """Kills a rank between a snapshot and its acceptance, and a second time with a bad disk."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster, self._name = cluster, name
        self.unaccepted: list[str] = []
        self.good: Report | None = None
        self.bad: list[str] = []

    def __call__(self, records: list[Record]) -> None:
        reported, attempts = reports(records), starts(records)
        paths = checkpoints(self._cluster, self._name)
        accepted = {report.checkpoint for report in reported}
        if not self.unaccepted and len(reported) >= 2:
            self.unaccepted = [str(path) for path in paths if str(path) not in accepted]
            if self.unaccepted:
                os.kill(attempts[0].workers[1].pid, signal.SIGKILL)
        second = [report for report in reported if report.attempt == 2]
        if self.good is None and len(second) >= 2:
            os.kill(attempts[1].workers[0].pid, signal.SIGKILL)
            self.good = second[-2]
            for path in checkpoints(self._cluster, self._name):
                if str(path) > self.good.checkpoint and (path / "model.pt").exists():
                    flip(path / "model.pt")
                    self.bad.append(path.name)


@pytest.fixture(scope="module")
def smooth(cluster: Cluster) -> Outcome:
    outcome = drive(cluster, train(cluster, "smooth", "--max-steps", str(LAST)))
    assert outcome.code == 0, outcome.output[-4000:]
    return outcome


@pytest.fixture(scope="module")
def trouble(cluster: Cluster) -> Trouble:
    return Trouble(cluster, "troubled")


@pytest.fixture(scope="module")
def troubled(cluster: Cluster, trouble: Trouble) -> Outcome:
    outcome = drive(cluster, train(cluster, "troubled", "--max-steps", str(LAST)), trouble)
    assert outcome.code == 0, outcome.output[-4000:]
    assert trouble.unaccepted, "no kill fell between a snapshot and its acceptance"
    assert trouble.bad
    return outcome


def test_unaccepted_checkpoint_at_a_kill_is_recomputed_bit_for_bit(
    troubled: Outcome, trouble: Trouble, smooth: Outcome
) -> None:
    first = [report for report in reports(troubled.records) if report.attempt == 1]
    assert f"resumed at step {first[-1].metrics['step']:.0f}, exactly" in troubled.output
    assert by_step(troubled.records) == by_step(smooth.records)


def test_a_damaged_checkpoint_is_kept_aside_and_the_one_before_is_used(
    cluster: Cluster, troubled: Outcome, trouble: Trouble
) -> None:
    assert trouble.good is not None
    assert f"resumed at step {trouble.good.metrics['step']:.0f}, exactly" in troubled.output
    accepted = [
        name for name in trouble.bad if f"{name} is damaged and not used" in troubled.output
    ]
    assert accepted, troubled.output[-4000:]
    for name in accepted:
        kept = cluster.directory / "results" / "troubled" / "damaged" / name
        assert f"model.pt is not what was written: its SHA-256 differs; kept in {kept}" in (
            troubled.output
        )
        assert (kept / "model.pt").exists()
    notices = bodies(troubled.records, Notice)
    assert {notice.message.split()[0] for notice in notices} == set(accepted)
    assert {(notice.reason, notice.attempt) for notice in notices} == {("CheckpointDamaged", 3)}
    assert len(starts(troubled.records)) == 3, "an attempt for each kill, and no more"


@pytest.mark.nightly  # without Ray Train: tests/training/test_on_ray.py
def test_a_run_continues_with_fewer_ranks_though_its_newest_checkpoint_was_deleted(
    cluster: Cluster, troubled: Outcome
) -> None:
    """One rank then has the examples of two in each step, so that the epoch continues unchanged."""
    *_, newest = checkpoints(cluster, "troubled")
    step = check(checkpoints(cluster, "troubled")[-2]).step
    shutil.rmtree(newest)
    argv = train(cluster, "troubled", "--workers", "1", "--batch-size", "32")
    outcome = drive(cluster, argv)
    assert outcome.code == 0, outcome.output[-4000:]
    assert f"{newest.name} is missing: a marked directory is in its place" in outcome.output
    text = f"resumed at step {step}, saved by 2 ranks, now 1: same examples, other noise"
    assert text in outcome.output
    last = reports(outcome.records)[-1].metrics
    assert (last["step"], last["epoch"]) == (540, 12)


@pytest.mark.nightly  # without Ray: tests/training/test_in_folder.py
def test_without_a_checkpoint_that_is_whole_the_run_stops_until_it_may_start_over(
    cluster: Cluster, smooth: Outcome
) -> None:
    paths = checkpoints(cluster, "smooth")
    for path in paths:
        (path / "manifest-1.json").unlink()
    outcome = drive(cluster, train(cluster, "smooth"))
    assert outcome.code == 1
    for path in paths:
        assert f"{path.name} is damaged and not used: manifest-1.json is missing" in outcome.output
    assert f"stopped: no checkpoint in {paths[0].parent} is whole" in outcome.output
    assert len(starts(outcome.records)) == 1, "it is not tried again"

    outcome = drive(cluster, train(cluster, "smooth", "--start-over", "true", "--max-steps", "5"))
    assert outcome.code == 0, outcome.output[-4000:]
    assert "is whole: the run starts over" in outcome.output
    assert [report.metrics["step"] for report in reports(outcome.records)] == [5]


DIES_WHILE_THEY_MEET = """
import os, sys
from pathlib import Path

import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.train.torch.config import _TorchBackend

mark = Path(sys.argv[1]) / "died"

class Backend(_TorchBackend):
    def on_start(self, group, config):
        if not mark.exists():
            mark.touch()
            group.execute_single(1, os._exit, 1)
        super().on_start(group, config)

class Config(TorchConfig):
    backend_cls = Backend

TorchTrainer(
    lambda: ray.train.report({"score": 1.0}),
    torch_config=Config(),
    scaling_config=ScalingConfig(num_workers=3),
    run_config=RunConfig(name="meets", storage_path=sys.argv[1]),
).fit()
"""


def test_a_rank_that_dies_while_the_ranks_meet_leaves_nothing_that_the_next_group_waits_for(
    cluster: Cluster,
) -> None:
    """The group takes 3 of 4 CPUs: a second one does not fit beside the remains of a first one."""
    script = cluster.directory / "meets.py"
    script.write_text(DIES_WHILE_THEY_MEET)
    callbacks = f"{CALLBACK},training.recovery.callback.RecoveryCallback"
    fast = replace(cluster, environment=cluster.environment | {"RAY_TRAIN_CALLBACKS": callbacks})
    outcome = drive(fast, [str(script), str(cluster.directory)], limit_s=600)
    assert outcome.code == 0, outcome.output[-4000:]
    assert "At least one of the worker actors failed to initialize" in outcome.output
    assert [report.metrics for report in reports(outcome.records)] == [{"score": 1.0}]
    ends = bodies(outcome.records, AttemptEnd)
    assert [end.attempt for end in ends] == [1, 2]
    assert ends[0].reason.startswith("the worker group did not start: "), ends
    assert ends[1].reason == "finished"
