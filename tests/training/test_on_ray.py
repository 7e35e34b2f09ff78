"""The job and its telemetry on a real Ray: a smooth run, one with a death, one with a NaN."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from tests.training.cluster import Cluster, Outcome, drive, started
from training.telemetry.wire import AttemptEnd, AttemptStart, Record, Report, Run, Steps, Tick

pytestmark = pytest.mark.ray

JOB = ["-m", "training.jobs.checkpointed", "--width", "32"]
EPOCHS = ["--epochs", "6", "--checkpoint-every-steps", "20"]
T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with started() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def smooth(cluster: Cluster) -> Outcome:
    """270 steps of two ranks, undisturbed."""
    return drive(cluster, [*JOB, *EPOCHS, *storage(cluster, "smooth")])


def storage(cluster: Cluster, name: str) -> list[str]:
    return ["--storage-path", str(cluster.directory / "results"), "--run-name", name]


def bodies(records: list[Record], kind: type[T]) -> list[T]:
    return [record.body for record in records if isinstance(record.body, kind)]


def steps(records: list[Record], rank: int, attempt: int) -> list[Steps]:
    ticks = bodies(records, Tick)
    every = [item for tick in ticks for item in tick.ranks]
    return [item for item in every if (item.rank, item.attempt) == (rank, attempt)]


def covered(records: list[Record], rank: int, attempt: int) -> list[int]:
    every = steps(records, rank, attempt)
    return [step for item in every for step in range(item.first_step, item.step + 1)]


def by_step(records: list[Record]) -> dict[int, tuple[float, float]]:
    reports = bodies(records, Report)
    return {
        int(report.metrics["step"]): (report.metrics["loss"], report.metrics["accuracy"])
        for report in reports
    }


def test_the_stream_tells_a_run_from_its_first_state_to_its_last(smooth: Outcome) -> None:
    assert smooth.code == 0, smooth.output[-4000:]
    assert [record.seq for record in smooth.records] == list(range(1, len(smooth.records) + 1))
    runs = bodies(smooth.records, Run)
    assert [run.state for run in runs] == [
        "INITIALIZING",
        "SCHEDULING",
        "RUNNING",
        "SHUTTING_DOWN",
        "FINISHED",
    ]
    assert runs[-1].name == "smooth"
    assert runs[-1].world_size == 2
    (start,) = bodies(smooth.records, AttemptStart)
    assert [worker.rank for worker in start.workers] == [0, 1]
    assert all(worker.pid and worker.node_id and worker.node_ip for worker in start.workers)
    (end,) = bodies(smooth.records, AttemptEnd)
    assert (end.attempt, end.reason) == (1, "finished")


def test_every_step_of_every_rank_is_in_the_stream_once(smooth: Outcome) -> None:
    for rank in (0, 1):
        assert covered(smooth.records, rank, 1) == list(range(1, 271))
        records = steps(smooth.records, rank, attempt=1)
        assert records[-1].loss is not None
        assert records[-1].samples_per_s
        assert records[-1].memory_bytes


def test_reports_carry_metrics_and_checkpoints(smooth: Outcome) -> None:
    reports = bodies(smooth.records, Report)
    assert [int(report.metrics["step"]) for report in reports][-1] == 270
    assert reports[-1].metrics["accuracy"] > 0.9
    assert "/smooth/checkpoint_" in reports[-1].checkpoint
    assert f"accuracy {reports[-1].metrics['accuracy']:.4f} after 270 steps" in smooth.output


@pytest.fixture(scope="module")
def disturbed(cluster: Cluster) -> Outcome:
    """The same run, whose aggregator is killed after step 30 and whose rank 1 is after 100."""
    dead: dict[str, int] = {}

    def kill(records: list[Record]) -> None:
        done = max((item.step for item in steps(records, 1, 1)), default=0)
        if done > 30 and "aggregator" not in dead:
            dead["aggregator"] = writer(max(cluster.streams()))
            os.kill(dead["aggregator"], signal.SIGKILL)
        if done > 100 and "rank" not in dead:
            (start,) = bodies(records, AttemptStart)
            dead["rank"] = start.workers[1].pid
            os.kill(dead["rank"], signal.SIGKILL)

    outcome = drive(cluster, [*JOB, *EPOCHS, *storage(cluster, "disturbed")], kill)
    assert set(dead) == {"aggregator", "rank"}
    assert outcome.code == 0, outcome.output[-4000:]
    return outcome


def writer(stream: Path) -> int:
    """The process that has the stream open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if link.readlink() == stream.resolve():
                return int(link.parts[2])
    raise AssertionError(f"nobody writes {stream}")


def test_a_killed_rank_costs_an_attempt_and_not_a_bit(disturbed: Outcome, smooth: Outcome) -> None:
    records = disturbed.records
    first, second = bodies(records, AttemptEnd)
    assert first.attempt == 1
    assert first.reason == "rank 1: its process died (killed, out of memory, or crashed)"
    assert (second.attempt, second.reason) == (2, "finished")
    before, after = bodies(records, AttemptStart)
    assert after.workers[1].pid != before.workers[1].pid

    restarting = [run for run in bodies(records, Run) if run.state == "RESTARTING"]
    assert [run.message for run in restarting] == [first.reason]

    resumed_from = steps(records, 0, 2)[0].first_step - 1
    assert resumed_from in by_step(records), "it resumes at a checkpoint"
    for rank in (0, 1):
        assert covered(records, rank, 2) == list(range(resumed_from + 1, 271)), "none is skipped"
    assert by_step(records) == by_step(smooth.records), "to the last bit"


def test_a_killed_aggregator_goes_on_where_it_was(disturbed: Outcome) -> None:
    numbers = [record.seq for record in disturbed.records]
    assert numbers == list(range(1, len(numbers) + 1))
    seen = covered(disturbed.records, 1, 1)
    assert seen == list(range(1, len(seen) + 1)), "no step is lost"


def test_a_loss_that_is_not_finite_stops_the_run_at_once(cluster: Cluster) -> None:
    argv = [*JOB, "--epochs", "2", "--learning-rate", "1e30", *storage(cluster, "nan")]
    outcome = drive(cluster, argv)
    assert outcome.code == 1
    assert "stopped: the loss became nan at step 2 on ranks 0, 1" in outcome.output
    assert len(bodies(outcome.records, AttemptStart)) == 1, "it is not tried again"
    last = bodies(outcome.records, Run)[-1]
    assert last.message == "the loss became nan at step 2 on ranks 0, 1"
    losses = [item.loss for item in steps(outcome.records, 0, 1)]
    assert losses
    assert losses[-1] != losses[-1], "the NaN is in the stream"


UNMODIFIED = """
import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

def loop():
    rank = ray.train.get_context().get_world_rank()
    ray.train.report({"score": 1.0 + rank})
    ray.train.report({"score": 2.0})  # returns when the first one was taken
    if rank == 1:
        raise ValueError("no more data\\nand a second line")

TorchTrainer(
    loop,
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(name="plain", storage_path="STORAGE"),
).fit()
"""


def test_an_unmodified_script_is_told_too(cluster: Cluster) -> None:
    script = cluster.directory / "plain.py"
    script.write_text(UNMODIFIED.replace("STORAGE", str(cluster.directory / "results")))
    outcome = drive(cluster, [str(script)])
    assert outcome.code != 0
    assert bodies(outcome.records, Report)[0].metrics == {"score": 1.5}
    (end,) = bodies(outcome.records, AttemptEnd)
    assert end.reason == "rank 1: ValueError: no more data"
    assert bodies(outcome.records, Run)[-1].state == "ERRORED"
    assert bodies(outcome.records, Run)[-1].message == end.reason
