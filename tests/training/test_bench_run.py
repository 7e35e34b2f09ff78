"""The benchmark, run for real with two processes of this machine."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.training.cluster import ROOT
from tests.training.test_bench import execute
from training.bench import batches
from training.bench.cpu_affinity import own_cores, share
from training.bench.loop import Loop, in_turn, same_step
from training.bench.results import Results, read
from training.bench.run import LAUNCHERS, PARTS
from training.bench.settings import BenchSettings
from training.data import load
from training.data.loader import Step
from training.jobs.benchmark import main
from training.loop.world import alone
from training.parallel.single_device import whole

JOB = [sys.executable, "-m", "training.jobs.benchmark", "--gpu", "false", "--ranks", "processes"]


@dataclass(frozen=True)
class Run:
    folder: Path
    output: str

    @property
    def results(self) -> Results:
        return read(self.folder / "results.json")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("bench")
    what = ",".join(part.name for part in PARTS if part.name != LAUNCHERS)
    section = ["--storage-path", str(folder), "--run-name", "run", "--width", "8", "--what", what]
    done = subprocess.run(
        [*JOB, "--quick", *section], cwd=ROOT, capture_output=True, text=True, timeout=560
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Run(folder / "run", done.stdout)


@pytest.mark.slow
def test_every_part_was_measured_and_reported(run: Run) -> None:
    assert run.results.failed == {}
    assert list(run.results.parts) == [part.name for part in PARTS if part.name != LAUNCHERS]
    assert run.results.quick
    report = (run.folder / "report.md").read_text()
    assert report in run.output
    for heading in ("Scaling", "Communication", "Data", "Checkpoints", "Techniques", "Profile"):
        assert f"\n## {heading}\n" in report


@pytest.mark.slow
def test_two_ranks_took_part(run: Run) -> None:
    hosts = run.results.parts["environment"]["hosts"]
    assert [host["ranks"] for host in hosts] == [[0, 1]]
    points = run.results.parts["scaling"]["points"]
    assert {(point["kind"], point["ranks"]) for point in points} == {
        ("strong", 1), ("weak", 1), ("strong", 2), ("weak", 2), ("apart", 2),
    }  # fmt: skip
    enough = len(os.sched_getaffinity(0)) >= 2
    assert all(point["own_cores"] is enough for point in points)


@pytest.mark.slow
def test_every_way_of_saving_left_files_and_took_them_away_again(run: Run) -> None:
    methods = run.results.parts["checkpoints"]["methods"]
    assert len(methods) == 5
    state_bytes = run.results.parts["checkpoints"]["state_bytes"]
    assert all(method["size_bytes"] > state_bytes for method in methods)
    assert not list(run.folder.glob("saving-*"))


@pytest.mark.slow
def test_batches_grew_in_two_precisions(run: Run) -> None:
    found = run.results.parts["batches"]["batches"]
    for precision in ("fp32", "bf16"):
        sizes = [item["batch_size"] for item in found if item["precision"] == precision]
        assert sizes[:4] == [1, 2, 4, 8]


@pytest.mark.slow
def test_the_trace_holds_the_operations_of_the_loop(run: Run) -> None:
    with gzip.open(run.folder / "trace.json.gz") as stream:
        events = json.load(stream)["traceEvents"]
    names = {event["name"] for event in events}
    assert "aten::convolution" in names
    assert any("ConvolutionBackward" in name for name in names)
    assert run.results.parts["profile"]["operations"]


@pytest.mark.slow
def test_the_targets_code_ran_with_small_models(run: Run) -> None:
    found = run.results.parts["targets"]
    assert found["promised"] is False
    assert found["token_model"] == "gpt-tiny"
    assert found["ratio"]["median"] > 0
    assert found["tokens_per_s"]["median"] > 0


@pytest.mark.slow
def test_the_notebook_reads_what_was_measured(run: Run) -> None:
    text = execute(run.folder / "notebook.ipynb")
    assert "all_reduce" in text
    assert "activation checkpointing" in text


def test_a_part_that_there_is_not_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", "--what", "speed"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value).startswith("--what speed: there is no part speed; there are environ")


def test_an_unusable_object_store_is_one_sentence_and_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmark", "--storage-path", "s3://id:key@b"])
    with pytest.raises(SystemExit, match="stopped: s3://b contains credentials"):
        main()
    assert not any(tmp_path.iterdir())


def test_failure_to_start_ranks_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Reported by a rank in a separate process, which sees no GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    section = ["--workers", "1", "--gpu", "true", "--ranks", "processes"]
    monkeypatch.setattr(sys, "argv", ["benchmark", *section, "--storage-path", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value).startswith("stopped: gpu=true, but rank 0")


def test_each_turn_begins_with_another() -> None:
    assert [in_turn("abc", turn) for turn in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_loops_take_turns_and_end_with_them() -> None:
    settings = BenchSettings(quick=True, width=8, workers=1).for_this_run()
    world, data = alone("false"), load(settings)
    with (
        Loop(settings, world, whole, data, same_step(settings, world, data)) as one,
        Loop(settings, world, whole, data, same_step(settings, world, data)) as other,
    ):
        assert one.turn(2) > 0
        assert other.turn(1) > 0
        assert one.turn(1) > 0
        threads = one._thread, other._thread
    assert not any(thread.is_alive() for thread in threads)


def test_exception_of_the_loop_reaches_the_caller() -> None:
    settings = BenchSettings(width=8, workers=1).for_this_run()
    world, data = alone("false"), load(settings)

    def steps() -> Iterator[Step]:
        yield next(same_step(settings, world, data))
        raise ValueError("no more of it")

    with Loop(settings, world, whole, data, steps()) as loop:
        loop.turn(1)
        with pytest.raises(ValueError, match="no more of it"):
            loop.turn(1)


def test_a_batch_that_does_not_fit_is_none() -> None:
    """The model alone needs an exbibyte."""
    settings = BenchSettings(quick=True, workers=1, model="mlp", width=1 << 52).for_this_run()
    assert batches.one(alone("false"), settings, load(settings), 1 << 30) is None


def test_a_loop_that_cannot_be_built_reports_it_at_once() -> None:
    settings = BenchSettings(model="gpt-tiny", workers=1).for_this_run()
    world, data = alone("false"), load(settings)
    with pytest.raises(RuntimeError, match="gpt-tiny is for tokens"):
        Loop(settings, world, whole, data, same_step(settings, world, data))


def test_ranks_share_a_hosts_cores_evenly_or_not_at_all() -> None:
    assert share({0, 1, 2, 3}, 1, 1) == {1}
    assert share({4, 5, 6, 7}, 1, 2) == {6, 7}
    assert share({0, 1, 2}, 1, 2) == set()


def test_cores_are_given_back() -> None:
    before, threads = os.sched_getaffinity(0), torch.get_num_threads()
    with own_cores(alone("false"), 1) as own:
        assert own
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before
    assert torch.get_num_threads() == threads
