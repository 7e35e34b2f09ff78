"""Scripts without cockpit, watched on a real Ray with two ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.training.cluster import Cluster, Outcome, bodies, drive, drive_each
from training.telemetry.wire import AttemptEnd, AttemptStart, Phase, Record, Report, Run, Trials

pytestmark = [pytest.mark.ray, pytest.mark.timeout(2400)]

SCRIPTS = Path(__file__).parent / "scripts"


def run(cluster: Cluster, script: str, name: str, *options: str) -> Outcome:
    storage = ["--storage-path", str(cluster.directory / "results"), "--name", name]
    outcome = drive(cluster, [str(SCRIPTS / script), *storage, *options])
    assert "telemetry:" not in outcome.output, outcome.output[-4000:]
    return outcome


def phases(records: list[Record]) -> list[tuple[int, str]]:
    found = sorted((r for r in records if isinstance(r.body, Phase)), key=lambda r: r.t)
    return [(r.body.attempt, r.body.phase) for r in found if isinstance(r.body, Phase)]


UP = ["scheduling", "placement group", "actor start", "process group", "first step"]


@pytest.fixture(scope="module")
def failed(cluster: Cluster) -> Outcome:
    """Fails once, in its second epoch, resumes from the checkpoint and finishes."""
    outcome = run(cluster, "plain_torch.py", "plain", "--fail-at", "1")
    assert outcome.code == 0, outcome.output[-4000:]
    return outcome


def test_each_attempt_goes_through_its_phases(failed: Outcome) -> None:
    reported = phases(failed.records)
    assert reported == [
        *((1, phase) for phase in (*UP, "running")),
        (2, "restarting"),
        *((2, phase) for phase in (*UP, "restore", "first step", "running", "shutting down")),
    ]


def test_attempts_begin_end_and_have_a_reason(failed: Outcome) -> None:
    assert [start.attempt for start in bodies(failed.records, AttemptStart)] == [1, 2]
    ends = [(end.attempt, end.reason) for end in bodies(failed.records, AttemptEnd)]
    # Ray's controller may poll after one rank has raised and before the other has.
    reasons = ("rank 0: ", "rank 1: ", "ranks 0, 1: ")
    assert ends[0] in [(1, f"{ranks}RuntimeError: a bad batch") for ranks in reasons]
    assert ends[1:] == [(2, "finished")]


def test_every_report_has_the_numbers_of_every_rank_and_its_checkpoint(failed: Outcome) -> None:
    reports = bodies(failed.records, Report)
    assert [report.metrics["epoch"] for report in reports] == [0.0, 1.0, 2.0]
    for report in reports:
        assert [(of.rank, of.metrics["rank"]) for of in report.by_rank] == [(0, 0.0), (1, 1.0)]
        assert "/plain/checkpoint_" in report.checkpoint
        assert report.checkpoint_bytes is not None
        assert 1_000 < report.checkpoint_bytes < 100_000
        assert report.checkpoint_took_s is not None
        assert 0 < report.checkpoint_took_s < 10


@pytest.mark.nightly  # tests/training/test_on_ray.py: elastic continues with what ddp has saved
@pytest.mark.slow
def test_a_second_driver_continues_in_the_run_of_the_same_name(
    cluster: Cluster, failed: Outcome
) -> None:
    again = run(cluster, "plain_torch.py", "plain", "--epochs", "4")
    assert again.code == 0, again.output[-4000:]
    before, after = (bodies(outcome.records, Run) for outcome in (failed, again))
    assert {reported.run for reported in after} == {reported.run for reported in before}
    assert after[0].job != before[0].job
    assert [start.attempt for start in bodies(again.records, AttemptStart)] == [3]
    assert (3, "restore") in phases(again.records)
    assert bodies(again.records, Report)[0].metrics["epoch"] == 3.0
    other = run(cluster, "plain_torch.py", "other", "--epochs", "1")
    assert {reported.run for reported in bodies(other.records, Run)}.isdisjoint(
        reported.run for reported in before
    )
    assert [start.attempt for start in bodies(other.records, AttemptStart)] == [1]


@pytest.fixture(scope="module")
def each(cluster: Cluster) -> Outcome:
    """Scripts that need no separate driver, one after the other in one."""
    scripts = {
        "lightning": ["lightning_fit.py"],
        "tuned": ["tuned.py"],
    }
    storage = ["--storage-path", str(cluster.directory / "results")]
    programs = {
        name: [str(SCRIPTS / script), *storage, "--name", name, *options]
        for name, (script, *options) in scripts.items()
    }
    outcome = drive_each(cluster, programs)
    assert "telemetry:" not in outcome.output, outcome.output[-4000:]
    return outcome


@pytest.mark.slow
def test_a_lightning_script_shows_all_of_it(each: Outcome) -> None:
    outcome = each.of("lightning")
    assert outcome.code == 0, outcome.output[-4000:]
    reported = phases(outcome.records)
    assert [phase for attempt, phase in reported if attempt == 1] == [*UP, "running"]
    again = ["restarting", *UP, "restore", "running", "shutting down"]
    # It fits within `as_directory`: the restore ends with the first report.
    assert [phase for attempt, phase in reported if attempt == 2] == again
    failed, ended = [end.reason for end in bodies(outcome.records, AttemptEnd)]
    # Both ranks fail, and the controller may ask for their states in between.
    assert re.fullmatch("(rank [01]|ranks 0, 1): RuntimeError: a bad node", failed)
    assert ended == "finished"
    reports = bodies(outcome.records, Report)
    assert len(reports) == 2
    for report in reports:
        assert [set(of.metrics) >= {"train_loss", "epoch", "step"} for of in report.by_rank] == [
            True,
            True,
        ]
        assert (report.checkpoint_bytes or 0) > 1_000
        assert (report.checkpoint_took_s or 0) > 0


@pytest.mark.nightly  # of another library: test_a_lightning_script_shows_all_of_it
@pytest.mark.slow
def test_a_transformers_script_shows_all_of_it(cluster: Cluster) -> None:
    outcome = run(cluster, "transformers_fit.py", "transformers")
    assert outcome.code == 0, outcome.output[-4000:]
    assert phases(outcome.records) == [(1, p) for p in (*UP, "running", "shutting down")]
    reports = bodies(outcome.records, Report)
    assert [report.metrics["epoch"] for report in reports] == [1.0, 2.0]
    for report in reports:
        assert [of.metrics["loss"] > 0 for of in report.by_rank] == [True, True]
        assert (report.checkpoint_bytes or 0) > 10_000
        assert (report.checkpoint_took_s or 0) > 0


@pytest.mark.slow
def test_the_trials_of_a_tune_script_are_in_the_stream(each: Outcome) -> None:
    reported = bodies(each.records, Trials)
    assert {item.experiment for item in reported} == {"tuned"}
    newest = {trial.id: trial for item in reported for trial in item.trials}
    by_rate = {trial.config["lr"]: trial for trial in newest.values()}
    states = {rate: trial.status for rate, trial in by_rate.items()}
    assert states == {"0.1": "TERMINATED", "0.2": "TERMINATED", "0.3": "ERROR"}
    assert by_rate["0.3"].error == "ValueError: it diverged"
    assert by_rate["0.2"].metrics["score"] == pytest.approx(0.6)
    for trial in newest.values():
        assert (trial.iteration, trial.config["api_key"]) == (3, "***")
        assert trial.pid
        assert trial.started_s
    assert "hush" not in "".join(map(repr, reported))
    seen = [trial.status for item in reported for trial in item.trials]
    assert {"PENDING", "RUNNING"} <= set(seen), "while it goes on, and not at its end alone"


@pytest.mark.nightly  # tests/training/test_tune_job.py: a trial of two ranks
@pytest.mark.slow
def test_a_trial_that_trains_has_the_id_of_its_run(cluster: Cluster) -> None:
    """Its driver starts Ray with an environment for all of its workers."""
    outcome = run(cluster, "tuned_train.py", "tuned-train")
    assert outcome.code == 0, outcome.output[-4000:]
    runs = {reported.run: reported for reported in bodies(outcome.records, Run)}
    assert {reported.state for reported in runs.values()} == {"FINISHED"}
    newest = {t.id: t for item in bodies(outcome.records, Trials) for t in item.trials}
    (trial,) = newest.values()
    assert runs[trial.run].name == f"train-{trial.id}"


@pytest.mark.nightly  # a killed driver: tests/training/test_driver.py
@pytest.mark.slow
def test_a_killed_driver_leaves_an_attempt_that_the_next_one_ends(cluster: Cluster) -> None:
    script = [str(SCRIPTS / "plain_torch.py"), "--name", "cut", "--epochs", "1000000"]
    storage = ["--storage-path", str(cluster.directory / "results")]

    def cut(records: list[Record]) -> bool:
        return len(bodies(records, Report)) >= 2

    first = drive(cluster, [*script, *storage], until=cut)
    reports = bodies(first.records, Report)
    again = run(cluster, "plain_torch.py", "cut", "--epochs", str(len(reports) + 2))
    assert again.code == 0, again.output[-4000:]
    assert not bodies(first.records, AttemptEnd)
    ends = [(end.attempt, end.reason) for end in bodies(again.records, AttemptEnd)]
    assert ends == [(1, "its driver went away"), (2, "finished")]
    assert {r.run for r in bodies(again.records, Run)} == {r.run for r in reports}
