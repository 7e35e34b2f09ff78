"""The search on a real Ray: what each scheduler does to real trials, and a search cut off."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.cluster import Cluster, Outcome, bodies, drive, drive_each
from training.jobs.tune import Settings
from training.loop.train import train
from training.loop.world import alone
from training.parallel.single_device import MODEL, whole
from training.search.folder import BEST
from training.telemetry.wire import AttemptStart, Record, Run, Tick, Trial, Trials

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(2400)]

SMALL = ["--width", "8", "--batch-size", "64"]
RATES = "learning_rate=log(1e-5,1e-1)"

SEARCHES = {
    # One at a time, so that the first sets the mark for the others.
    "asha": "asha --samples 4 --epochs 4 --reduction 2 --max-parallel 1",
    "pbt": "pbt --samples 4 --epochs 4 --exploit-every-epochs 1 --max-parallel 2 --num-to-keep 9",
    "nan": "asha --seed 2 --samples 3 --epochs 1 --max-failures 0 --max-parallel 2",
    "ranks": "none --samples 1 --epochs 1 --workers 2 --placement spread",
    "many": "none --workers 9 --when-lacking fail",
}
OTHER_SCHEDULERS = {
    "band": "hyperband --samples 6 --epochs 4 --reduction 2 --max-parallel 2",
    "median": "median --samples 5 --epochs 3 --max-parallel 2",
}
SPACES = {
    "pbt": f"{RATES} weight_decay=log(1e-4,1)",
    "nan": "learning_rate=choice(0.003,1e30)",
}


@pytest.fixture(scope="module")
def searched(cluster: Cluster) -> Outcome:
    """All of them, one after the other by one driver, which saves the start of the others."""
    again = {"asha again": SEARCHES["asha"], "asha otherwise": "asha --samples 5"}
    return search(cluster, SEARCHES | again)


@pytest.fixture(scope="module")
def other_schedulers(cluster: Cluster) -> Outcome:
    return search(cluster, OTHER_SCHEDULERS)


def search(cluster: Cluster, searches: Mapping[str, str]) -> Outcome:
    return drive_each(
        cluster,
        {
            name: ["training.jobs.tune", *arguments(cluster, name.split()[0], text)]
            for name, text in searches.items()
        },
    )


def arguments(cluster: Cluster, name: str, text: str) -> list[str]:
    place = ["--storage-path", str(cluster.directory / "results"), "--run-name", name]
    space = ["--space", SPACES.get(name, RATES)]
    return [*SMALL, *place, *space, "--scheduler", *text.split()]


def folder(cluster: Cluster, name: str) -> Path:
    return cluster.directory / "results" / name


def results(cluster: Cluster, name: str) -> dict[str, list[dict[str, Any]]]:
    """By trial, what it reported, in order."""
    found = {}
    for file in sorted(folder(cluster, name).glob("*/result.json")):
        found[file.parent.name] = [json.loads(line) for line in file.read_text().splitlines()]
    return found


def trials(records: list[Record], name: str) -> dict[str, Trial]:
    """As last reported."""
    reported = bodies(records, Trials)
    return {
        trial.id: trial for item in reported if item.experiment == name for trial in item.trials
    }


def best(cluster: Cluster, name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder(cluster, name) / BEST).read_text())
    return data


def test_asha_stops_those_that_are_worse_and_names_the_best(
    cluster: Cluster, searched: Outcome
) -> None:
    reported = results(cluster, "asha")
    assert len(reported) == 4
    epochs = {trial: rows[-1]["epoch"] for trial, rows in reported.items()}
    assert max(epochs.values()) == 4
    stopped = [trial for trial, epoch in epochs.items() if epoch < 4]
    assert stopped, "one that is worse than the others"
    last = {trial: rows[-1]["accuracy"] for trial, rows in reported.items()}
    found = best(cluster, "asha")
    assert found["value"] == last[found["trial"]] == max(last.values())
    assert found["config"] == reported[found["trial"]][-1]["config"]
    assert found["trial"] not in stopped
    assert found["launch"] in searched.of("asha").output
    assert Path(found["checkpoint"]).parent.name == found["trial"]


def test_trials_are_reported_with_their_metric_and_the_steps_of_their_runs(
    cluster: Cluster, searched: Outcome
) -> None:
    records = searched.records
    values = bodies(records, Trials)
    aims = {(item.metric, item.mode) for item in values if item.experiment == "asha"}
    assert aims == {("accuracy", "max")}
    by_trial = trials(records, "asha")
    assert {trial.status for trial in by_trial.values()} == {"TERMINATED"}
    rows = results(cluster, "asha")
    assert {trial.id: trial.metrics["accuracy"] for trial in by_trial.values()} == {
        trial: reported[-1]["accuracy"] for trial, reported in rows.items()
    }
    assert all(trial.run == trial.id for trial in by_trial.values())
    runs = {record.body.run: record.body for record in records if isinstance(record.body, Run)}
    assert {runs[trial].state for trial in by_trial} == {"FINISHED"}
    starts = bodies(records, AttemptStart)
    attempts = {start.run: start.attempt for start in starts}
    assert {attempts[trial] for trial in by_trial} == {1}
    stepped = {
        record.body.run
        for record in records
        if isinstance(record.body, Tick)
        for item in record.body.ranks
        if item.loss is not None
    }
    # A trial that is stopped within its first second has reported no step by then.
    to_the_end = {trial for trial in by_trial if len(rows[trial]) == 4}
    assert to_the_end
    assert to_the_end <= stepped


def test_a_finished_search_again_does_nothing_and_reports_the_same(
    cluster: Cluster, searched: Outcome
) -> None:
    again = searched.of("asha again").output
    assert "the search asha resumes: finished trials stay finished" in again
    assert best(cluster, "asha")["launch"] in again
    for trial, rows in results(cluster, "asha").items():
        epochs = [row["epoch"] for row in rows]
        assert epochs == sorted(set(epochs)), f"{trial} did none twice"


def test_a_search_that_was_begun_otherwise_does_not_continue(searched: Outcome) -> None:
    assert (
        "the search asha resumes with its original settings, "
        "but samples was 4 and is 5; reduction was"
    ) in searched.of("asha otherwise").output


@pytest.mark.nightly  # ASHA stops trials, PBT continues from a checkpoint
def test_hyperband_pauses_trials_and_lets_the_better_ones_continue(
    cluster: Cluster, other_schedulers: Outcome
) -> None:
    rows = results(cluster, "band")
    # Brackets of 3 trials: the first has one round of 4 epochs, the second ends one after 2.
    assert sorted(trial[-1]["epoch"] for trial in rows.values()) == [2, 4, 4, 4, 4, 4]
    went_on = [trial for trial in rows.values() if trial[-1]["resumed_from"]]
    assert went_on, "those that were paused go on from their checkpoint"
    for trial in rows.values():
        assert [row["epoch"] for row in trial] == list(range(1, len(trial) + 1))
    (ended,) = [trial for trial in rows.values() if trial[-1]["epoch"] == 2]
    assert ended[-1]["accuracy"] <= min(trial[1]["accuracy"] for trial in went_on)


def test_no_more_trials_run_at_a_time_than_are_asked_for(searched: Outcome) -> None:
    """Reported once a second, so that short ones may overlap unnoticed."""
    seen = {name: at_a_time(searched, name) for name in ("asha", "pbt")}
    assert seen["asha"] == 1
    assert seen["pbt"] <= 2


def at_a_time(searched: Outcome, experiment: str) -> int:
    status: dict[str, str] = {}
    most = 0
    for record in searched.records:
        if isinstance(record.body, Trials) and record.body.experiment == experiment:
            status |= {trial.id: trial.status for trial in record.body.trials}
            most = max(most, list(status.values()).count("RUNNING"))
    return most


@pytest.mark.nightly  # ASHA stops trials that are worse
def test_median_stopping_ends_those_below_the_middle(
    cluster: Cluster, other_schedulers: Outcome
) -> None:
    rows = results(cluster, "median")
    stopped = {name: trial for name, trial in rows.items() if trial[-1]["epoch"] < 3}
    assert stopped
    finished = [trial for name, trial in rows.items() if name not in stopped]
    assert finished
    for trial in stopped.values():
        assert trial[-1]["accuracy"] < max(item[-1]["accuracy"] for item in finished)


class Copied(Exception):
    pass


class From:
    """Begins with a checkpoint, and keeps the first one that it receives."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.states: dict[str, Any] = {}

    @contextmanager
    def newest(self) -> Iterator[Path | None]:
        yield self._path

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """The trial's results are not checked."""

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        self.states = dict(states)
        raise Copied


def test_a_trial_that_exploits_continues_with_the_very_weights_of_the_better_one(
    cluster: Cluster, searched: Outcome
) -> None:
    """Continued training from the other's checkpoint equals the trial's result, bit for bit.

    With the trial's new settings, an epoch later.
    """
    rows = results(cluster, "pbt")
    assert [trial[-1]["epoch"] for trial in rows.values()] == [4, 4, 4, 4]
    copies = 0
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, trial in rows.items():
            for before, after in pairwise(trial):
                donor = Path(after["resumed_from"])
                if (
                    donor.parent.name in ("", name)
                    or after["resumed_from"] == before["resumed_from"]
                ):
                    continue
                assert after["config"] != before["config"]
                settings = replace(Settings(width=8, batch_size=64, epochs=4), **after["config"])
                expected = From(donor)
                with pytest.raises(Copied):
                    train(settings, alone("false"), expected, whole)
                own = folder(cluster, "pbt") / name / after["checkpoint_dir_name"]
                assert same(expected.states[MODEL], torch.load(own / MODEL))
                others = folder(cluster, "pbt") / name / before["checkpoint_dir_name"]
                assert not same(torch.load(donor / MODEL), torch.load(others / MODEL))
                copies += 1
    finally:
        torch.set_num_threads(threads)
    # One of the four after each epoch but the last, unless the best of them was the last to report:
    # what Tune 2.60 has it save then may come too late to be copied.
    assert copies >= 1


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def saved(cluster: Cluster, name: str) -> dict[str, tuple[str, int]]:
    """By trial, its status and its checkpoints, as Tune has written them down for a restore."""
    from ray.tune.trainable.metadata import _TrainingRunMetadata

    found = {}
    for file in folder(cluster, name).glob("experiment_state-*.json"):
        try:
            state = json.loads(file.read_text())
        except ValueError:
            continue  # it is being written
        for trial, reported in state["trial_data"]:
            fields = json.loads(trial)
            kept = _TrainingRunMetadata.from_json_state(reported).checkpoint_manager
            found[fields["trial_id"]] = (fields["status"], len(kept.best_checkpoint_results))
    return found


LONG = 30
"""Epochs: Tune writes its state down once a second, and a quick machine has ten epochs in one."""


@pytest.mark.nightly  # a killed run: tests/training/test_on_ray.py
def test_a_search_that_was_killed_continues_and_repeats_no_finished_trial(cluster: Cluster) -> None:
    text = f"none --samples 4 --epochs {LONG} --max-parallel 2 --num-to-keep 9"
    job = ["-m", "training.jobs.tune", *arguments(cluster, "cut", text)]

    def in_the_middle(records: list[Record]) -> bool:
        """One is finished, and another has a checkpoint."""
        states = saved(cluster, "cut").values()
        return any(status == "TERMINATED" for status, _ in states) and any(
            status == "RUNNING" and checkpoints for status, checkpoints in states
        )

    cut = drive(cluster, job, until=in_the_middle)
    assert cut.code == -signal.SIGKILL, cut.output[-4000:]
    before = saved(cluster, "cut")
    finished = [trial for trial, (status, _) in before.items() if status == "TERMINATED"]
    under_way = [trial for trial, (status, kept) in before.items() if status == "RUNNING" and kept]
    assert finished
    assert under_way

    again = drive(cluster, job)
    assert again.code == 0, again.output[-4000:]
    rows = results(cluster, "cut")
    assert len(rows) == 4
    assert {trial[-1]["epoch"] for trial in rows.values()} == {LONG}
    for name in finished:
        assert [row["epoch"] for row in rows[name]] == list(range(1, LONG + 1)), "not done again"
    for name in under_way:
        own = rows[name][-1]["resumed_from"]
        assert Path(own).parent.name == name, "it goes on from its own checkpoint"
    assert best(cluster, "cut")["value"] == max(trial[-1]["accuracy"] for trial in rows.values())


def test_a_trial_that_diverges_fails_alone(cluster: Cluster, searched: Outcome) -> None:
    reported = trials(searched.records, "nan")
    failed = {item.id for item in reported.values() if float(item.config["learning_rate"]) > 1}
    assert 0 < len(failed) < 3
    assert {item.id for item in reported.values() if item.status == "ERROR"} == failed
    for name in failed:
        assert "the loss became nan at step" in reported[name].error
        assert f"{name}: " in searched.of("nan").output
    assert best(cluster, "nan")["config"] == {"learning_rate": 0.003}


def test_a_trial_of_two_ranks_is_a_run_of_its_own(cluster: Cluster, searched: Outcome) -> None:
    reported = trials(searched.records, "ranks")
    runs = {
        record.body.run: record.body for record in searched.records if isinstance(record.body, Run)
    }
    (trial,) = reported.values()
    assert trial.status == "TERMINATED"
    assert runs[trial.run].trial == trial.id
    assert runs[trial.run].world_size == 2
    (rows,) = results(cluster, "ranks").values()
    assert [row["epoch"] for row in rows] == [1]
    assert (Path(best(cluster, "ranks")["checkpoint"]) / "manifest-1.json").exists()


def test_more_ranks_than_the_cluster_has_are_reported(searched: Outcome) -> None:
    assert "9 workers take 9 CPU, and the cluster has 4" in searched.of("many").output
