"""The job and its telemetry on a real Ray: a smooth run, one with a death, one with a NaN."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.training.cluster import Cluster, Outcome, bodies, drive, drive_each
from training.telemetry.wire import (
    AttemptEnd,
    AttemptStart,
    Phase,
    Record,
    Report,
    Run,
    Steps,
    Tick,
)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(2400)]

JOB = ["-m", "training.jobs.checkpointed", "--width", "32"]
EPOCHS = ["--epochs", "16", "--checkpoint-every-steps"]
LAST = 16 * 45
"""Steps. Far behind what a kill aims at: news of step 100 may take seconds, of 100 steps each."""


@pytest.fixture(scope="module")
def smooth(cluster: Cluster) -> Outcome:
    """Two ranks, undisturbed."""
    return drive(cluster, [*JOB, *EPOCHS, "60", *storage(cluster, "smooth")])


def storage(cluster: Cluster, name: str) -> list[str]:
    return ["--storage-path", str(cluster.directory / "results"), "--run-name", name]


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


def test_the_stream_reports_a_run_from_its_first_state_to_its_last(smooth: Outcome) -> None:
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
        assert covered(smooth.records, rank, 1) == list(range(1, LAST + 1))
        records = steps(smooth.records, rank, attempt=1)
        assert records[-1].loss is not None
        assert records[-1].samples_per_s
        assert records[-1].memory_bytes


def test_reports_carry_metrics_and_checkpoints(smooth: Outcome) -> None:
    reports = bodies(smooth.records, Report)
    assert [int(report.metrics["step"]) for report in reports][-1] == LAST
    assert reports[-1].metrics["accuracy"] > 0.9
    assert "/smooth/checkpoint_" in reports[-1].checkpoint
    assert f"accuracy {reports[-1].metrics['accuracy']:.4f} after {LAST} steps" in smooth.output


@pytest.fixture(scope="module")
def disturbed(cluster: Cluster) -> Outcome:
    """The same run, whose aggregator is killed after step 30 and whose rank 1 is after 100."""
    dead: dict[str, int] = {}
    found: list[int] = []

    def kill(records: list[Record]) -> None:
        done = max((item.step for item in steps(records, 1, 1)), default=0)
        if done and not found:  # before the kill: on a busy machine, the search takes a second
            found.append(writer(max(cluster.streams())))
        if done > 30 and "aggregator" not in dead:
            dead["aggregator"] = found[0]
            os.kill(dead["aggregator"], signal.SIGKILL)
        if done > 100 and "rank" not in dead:
            (start,) = bodies(records, AttemptStart)
            dead["rank"] = start.workers[1].pid
            os.kill(dead["rank"], signal.SIGKILL)

    outcome = drive(cluster, [*JOB, *EPOCHS, "60", *storage(cluster, "disturbed")], kill)
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
    assert (first.budget, second.budget) == ("max_failures", "none")
    reported = bodies(records, Run)[0]
    assert (reported.max_failures, reported.max_preemption_failures) == (5, -1)
    before, after = bodies(records, AttemptStart)
    assert after.workers[1].pid != before.workers[1].pid

    restarting = [run for run in bodies(records, Run) if run.state == "RESTARTING"]
    assert [run.message for run in restarting] == [first.reason]

    resumed_from = steps(records, 0, 2)[0].first_step - 1
    assert resumed_from in by_step(records), "it resumes at a checkpoint"
    for rank in (0, 1):
        assert covered(records, rank, 2) == list(range(resumed_from + 1, LAST + 1)), (
            "none is skipped"
        )
    assert by_step(records) == by_step(smooth.records), "to the last bit"


def test_a_killed_aggregator_continues_where_it_was(disturbed: Outcome) -> None:
    numbers = [record.seq for record in disturbed.records]
    assert numbers == list(range(1, len(numbers) + 1))
    seen = covered(disturbed.records, 1, 1)
    assert seen == list(range(1, len(seen) + 1)), "no step is lost"


DYING = """
import os, signal, sys, time
from pathlib import Path

import ray

from training.telemetry.head import aggregator
from training.telemetry.wire import Steps
from training.telemetry.worker.sender import ActorSink

folder = Path(sys.argv[1])

class Dying(aggregator.AggregatorActor):
    def push(self, run, records):
        self.die("before", records)
        super().push(run, records)
        self.die("after", records)

    def die(self, when, records):
        file = folder / f"{when}-{records[-1].step}"
        if file.exists():
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

(folder / "before-2").touch()
(folder / "after-3").touch()
ray.init()
job = ray.get_runtime_context().get_job_id()
named = {"name": aggregator._name(job), "namespace": aggregator.NAMESPACE}
actor = ray.remote(Dying).options(num_cpus=0, max_restarts=-1, **named).remote(job)
sink = ActorSink("r", job, actor)
for step in range(1, 5):
    sink.send(Steps(rank=0, attempt=1, t=time.time(), step=step, first_step=step, steps_total=step))
    if step == 4:  # while the last one is in flight
        sink.send(Steps(rank=0, attempt=1, t=time.time(), step=5, first_step=5, steps_total=5))
    while sink.busy():
        sink.drain(60)
assert not list(folder.iterdir())
"""


@pytest.mark.slow
def test_aggregator_killed_before_or_after_a_write_neither_loses_nor_repeats_the_record(
    cluster: Cluster,
) -> None:
    script, folder = cluster.directory / "dying.py", cluster.directory / "dying"
    script.write_text(DYING)
    folder.mkdir()
    outcome = drive(cluster, [str(script), str(folder)], limit_s=300)
    assert outcome.code == 0, outcome.output[-4000:]
    assert covered(outcome.records, 0, 1) == [1, 2, 3, 4, 5]
    assert [record.seq for record in outcome.records] == list(range(1, len(outcome.records) + 1))


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


@pytest.fixture(scope="module")
def small(cluster: Cluster) -> Outcome:
    """Small runs, one after the other in one driver; `elastic` resumes the run of `ddp`.

    From `lacking` on they end before or in their first steps.
    """
    script = cluster.directory / "plain.py"
    script.write_text(UNMODIFIED.replace("STORAGE", str(cluster.directory / "results")))
    options = ["--width", "8", "--epochs", "1", *storage(cluster, "saved-by-ddp")]
    checkpointed, ddp = "training.jobs.checkpointed", "training.jobs.ddp"
    large = ["--model", "mlp", "--width", "10000000", "--max-failures", "0", "--interface", "lo"]
    no_data = ["--data", "cifar10", "--data-path", "/nowhere"]
    no_loss = ["--width", "32", "--epochs", "2", "--learning-rate", "1e30"]
    programs = {
        "saved-by-ddp": [ddp, *options, "--max-steps", "5"],
        "elastic": ["training.jobs.elastic", *options, "--workers", "2", "--max-steps", "9"],
        "plain": [str(script)],
        "lacking": [ddp, "--workers", "9", "--when-lacking", "fail"],
        "eth99": [checkpointed, "--interface", "eth99", *storage(cluster, "eth99")],
        "nan": [checkpointed, *no_loss, *storage(cluster, "nan")],
        "nodata": [ddp, *no_data, *storage(cluster, "nodata")],
        "large": [checkpointed, *large, *storage(cluster, "large")],
    }
    return drive_each(cluster, programs)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_the_run_at_once(small: Outcome) -> None:
    outcome = small.of("nan")
    assert outcome.code == 1
    assert "stopped: the loss became nan at step 2 on ranks 0, 1" in outcome.output
    assert len(bodies(outcome.records, AttemptStart)) == 1, "it is not tried again"
    last = bodies(outcome.records, Run)[-1]
    assert last.message == "the loss became nan at step 2 on ranks 0, 1"
    losses = [item.loss for item in steps(outcome.records, 0, 1)]
    assert losses
    assert losses[-1] != losses[-1], "the NaN is in the stream"


@pytest.mark.slow
def test_elastic_continues_with_what_ddp_has_saved(small: Outcome) -> None:
    assert small.of("saved-by-ddp").code == 0, small.output[-4000:]
    assert small.of("elastic").code == 0, small.output[-4000:]
    assert "2 of 2 workers: a step has up to 32 examples, 16 a micro-batch of each" in small.output
    assert "resumed at step 5, exactly" in small.output
    reports = bodies(small.of("saved-by-ddp").records, Report)  # one run, of both jobs
    assert [int(report.metrics["step"]) for report in reports] == [5, 9]


@pytest.mark.slow
def test_more_workers_than_cpus_are_refused_with_both_numbers(small: Outcome) -> None:
    assert small.of("lacking").code == 1
    assert "9 workers take 9 CPU, and the cluster has 4" in small.of("lacking").output


@pytest.mark.slow
def test_data_that_is_missing_ends_the_run_at_its_first_attempt(small: Outcome) -> None:
    stopped = small.of("nodata")
    assert stopped.code == 1
    (text,) = [line for line in stopped.output.splitlines() if line.startswith("stopped: ")]
    assert "/nowhere" in text
    assert len(bodies(stopped.records, AttemptStart)) == 1
    assert bodies(stopped.records, Run)[-1].message in text


@pytest.mark.slow
def test_an_unmodified_script_is_in_the_stream(small: Outcome) -> None:
    outcome = small.of("plain")
    assert outcome.code != 0
    assert bodies(outcome.records, Report)[0].metrics == {"score": 1.5}
    (end,) = bodies(outcome.records, AttemptEnd)
    assert end.reason == "rank 1: ValueError: no more data"
    assert bodies(outcome.records, Run)[-1].state == "ERRORED"
    assert bodies(outcome.records, Run)[-1].message == end.reason


@pytest.mark.slow
def test_an_interface_that_the_nodes_do_not_have_is_refused_before_a_worker_starts(
    small: Outcome,
) -> None:
    outcome = small.of("eth99")
    assert outcome.code == 1
    assert "has no network interface eth99: give interface one of " in outcome.output
    assert "Traceback" not in outcome.output
    assert outcome.records == []


@pytest.mark.slow
def test_a_rank_that_runs_out_of_memory_ends_the_run_with_smaller_settings(
    small: Outcome,
) -> None:
    """Its ranks use the given interface, in a separate environment."""
    outcome = small.of("large")
    assert outcome.code == 1
    text = outcome.output[outcome.output.rindex("failed: rank ") :]
    # The controller's log lines may arrive later, under its name.
    text = "\n".join(line for line in text.splitlines() if "(TrainController pid=" not in line)
    assert "ran out of memory: it had " in text
    assert f"and asked for {4 * 10**14} bytes more" in text
    assert "what helps, best first: batch_size=8 with accumulate=2" in text
    assert "ran out of memory" in bodies(outcome.records, Run)[-1].message


@pytest.fixture(scope="module")
def torchrun(cluster: Cluster) -> Outcome:
    """Two ranks started by torchrun's agent; one is killed after step 30."""
    dead: list[int] = []

    def kill(records: list[Record]) -> None:
        if not dead and any(item.step > 30 for item in steps(records, 1, 1)):
            (start,) = bodies(records, AttemptStart)
            dead.append(start.workers[1].pid)
            os.kill(dead[0], signal.SIGKILL)

    argv = ["-m", "training.jobs.ddp_torchrun", "--width", "32", *EPOCHS, "20"]
    argv += storage(cluster, "torchrun")
    outcome = drive(cluster, argv, kill)
    assert dead
    assert outcome.code == 0, outcome.output[-4000:]
    return outcome


@pytest.mark.nightly  # without Ray: tests/training/test_torchrun.py
def test_torchrun_run_is_reported_like_a_ray_train_run(torchrun: Outcome) -> None:
    records = torchrun.records
    first, second = bodies(records, AttemptEnd)
    assert first.reason == "rank 1: its process died (killed, out of memory, or crashed)"
    assert (first.attempt, first.budget) == (1, "max_failures")
    assert (second.attempt, second.reason, second.budget) == (2, "finished", "none")
    before, after = bodies(records, AttemptStart)
    assert [worker.rank for worker in after.workers] == [0, 1]
    assert all(worker.pid and worker.node_id and worker.node_ip for worker in after.workers)
    assert after.workers[1].pid != before.workers[1].pid

    states = [run.state for run in bodies(records, Run)]
    assert states[:3] == ["INITIALIZING", "SCHEDULING", "RUNNING"]
    assert states[3:] == ["RESTARTING", "RUNNING", "SHUTTING_DOWN", "FINISHED"]
    phases = [(item.attempt, item.phase) for item in bodies(records, Phase)]
    assert phases[-3:] == [(2, "first step"), (2, "running"), (2, "shutting down")]

    reports = bodies(records, Report)
    assert all(Path(report.checkpoint).is_dir() for report in reports[-3:])
    assert reports[-1].metrics["step"] == LAST
    resumed_from = steps(records, 0, 2)[0].first_step - 1
    assert f"resumed at step {resumed_from}, exactly" in torchrun.output
    for rank in (0, 1):
        assert covered(records, rank, 2) == list(range(resumed_from + 1, LAST + 1)), (
            "none is skipped"
        )


@pytest.mark.slow
def test_a_rank_without_ray_train_continues_in_the_same_run_of_the_stream(
    cluster: Cluster, torchrun: Outcome
) -> None:
    """One process, of the baseline, with the share of two: it reads what the two have saved."""
    argv = ["-m", "training.jobs.baseline", "--width", "32", "--workers", "2", "--epochs", "17"]
    outcome = drive(cluster, [*argv, *storage(cluster, "torchrun")])
    assert outcome.code == 0, outcome.output[-4000:]
    assert f"resumed at step {LAST}, saved by 2 ranks, now 1: same examples" in outcome.output
    (start,) = bodies(outcome.records, AttemptStart)
    assert start.run == bodies(torchrun.records, AttemptStart)[0].run
    assert start.attempt == 3
    assert covered(outcome.records, 0, 3) == list(range(LAST + 1, LAST + 46))
