"""The jobs with a bucket as storage path: one process, torchrun, Ray, and the benchmark."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow.fs import FileSelector  # type: ignore[import-untyped]

from tests.training.cluster import ROOT, Cluster, drive, drive_each
from tests.training.object_store import ObjectStore
from tests.training.runs import one
from tests.training.test_pictures_in_files import FORMATS, written
from tests.training.test_recovered_on_ray import by_step, reports, starts
from training.bench import saving
from training.checkpoint.filesystem import S3, located
from training.checkpoint.manifest import Damaged, check
from training.checkpoint.rank_part import write
from training.checkpoint.storage import SNAPSHOT, RunDirectory
from training.jobs import baseline, benchmark
from training.jobs.fit import OnRay, retention, storage_of
from training.jobs.plain import end
from training.telemetry.wire import Record

SMALL = ["--width", "8", "--batch-size", "64", "--epochs", "2"]


def objects(path: str) -> set[str]:
    filesystem, folder = located(path)
    found = filesystem.get_file_info(FileSelector(folder, recursive=True, allow_not_found=True))
    return {item.path.removeprefix(f"{folder}/") for item in found if item.is_file}


def test_baseline_saves_to_a_bucket_and_continues_by_its_name(
    s3: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("training.jobs.plain.RESULTS", str(tmp_path))
    settings = baseline.Settings(
        width=8, batch_size=64, epochs=2, storage_path="s3://bucket/baseline", run_name="small"
    )
    for ends_at in (20, 46):
        result = baseline.rank(replace(settings, max_steps=ends_at))
        end(result)
        where = "its checkpoints are in s3://bucket/baseline/small"
        assert f"after {ends_at} steps; {where}" in capsys.readouterr().out.splitlines()[-1]
    assert "checkpoint_000000000046/manifest-0.json" in objects("s3://bucket/baseline/small")
    assert not any(tmp_path.iterdir())


def test_an_unusable_bucket_stops_baseline_before_it_trains(
    s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = baseline.rank(baseline.Settings(storage_path="s3://nowhere/runs", run_name="small"))
    assert result["stopped"] == (
        "s3://nowhere/runs: there is no bucket nowhere; create it, or correct the name"
    )


@pytest.mark.nightly  # of one process: the test of baseline above
def test_ranks_under_torchrun_save_to_a_bucket_and_resume(s3: ObjectStore) -> None:
    run = ["--workers", "2", "--storage-path", "s3://bucket/torchrun", "--run-name", "two"]
    job = ["-m", "training.jobs.ddp_torchrun", *SMALL, *run]
    for steps, expected in (("10", "after 10 steps"), ("20", "resumed at step 10, exactly")):
        done = subprocess.run(
            [sys.executable, *job, "--max-steps", steps],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert expected in done.stdout
    assert "checkpoint_000000000020/manifest-1.json" in objects("s3://bucket/torchrun/two")


def test_ray_train_uses_the_bucket_and_starts_with_a_damaged_list(s3: ObjectStore) -> None:
    """Without a cluster: Ray's own storage, its list of checkpoints, and its download."""
    from ray.train import Checkpoint, RunConfig

    settings = OnRay(storage_path="s3://bucket/listed", keep_best=2, best_metric="accuracy")
    context = RunConfig(name="digits", **storage_of(settings)).storage_context
    run = RunDirectory(context.storage_filesystem, context.experiment_fs_path)
    assert run.path == "bucket/listed/digits"
    assert isinstance(pickle.loads(pickle.dumps(run.filesystem)), S3)
    path = f"{run.path}/checkpoint_1"
    write(run.filesystem, path, {"a.pt": {"step": 1}}, rank=0, world_size=1, step=1)
    with Checkpoint(path, run.filesystem).as_directory() as directory:
        assert check(Path(directory)).step == 1
    listed = [{"checkpoint_dir_name": name} for name in ("checkpoint_1", "checkpoint_2")]
    with run.filesystem.open_output_stream(f"{run.path}/{SNAPSHOT}") as stream:
        stream.write(json.dumps({"checkpoint_results": listed}).encode())
    assert run.repair() == ["checkpoint_2 is missing: a marked directory is in its place"]
    assert run.repair() == []
    assert run.put_aside(path, "why") == "marked as damaged"
    assert run.checkpoints() == []
    marked = Checkpoint(path, run.filesystem).as_directory()
    with marked as directory, pytest.raises(Damaged, match="marked before: why"):
        check(Path(directory))
    kept = retention(settings)
    assert (kept.num_to_keep, kept.checkpoint_score_attribute) == (2, "accuracy")
    assert kept.checkpoint_score_order == "max"


def test_an_unusable_bucket_stops_a_job_on_ray_before_it_starts(s3: ObjectStore) -> None:
    with pytest.raises(SystemExit, match=r"^stopped: s3://nowhere/runs: there is no bucket"):
        storage_of(OnRay(storage_path="s3://nowhere/runs"))


@pytest.mark.nightly  # without Ray: tests/training/test_checkpoints_on_s3.py
@pytest.mark.ray
def test_a_rank_that_is_killed_on_ray_resumes_from_the_bucket_exactly(
    cluster: Cluster, s3: ObjectStore
) -> None:
    job = ["-m", "training.jobs.checkpointed", *SMALL, "--checkpoint-every-steps", "10"]
    job += ["--epochs", "9", "--max-steps", "70", "--num-to-keep", "2"]
    folder = ["--storage-path", str(cluster.directory / "results"), "--run-name", "smooth"]
    smooth = drive(cluster, [*job, *folder])
    assert smooth.code == 0, smooth.output[-4000:]

    killed: list[int] = []

    def kill(records: list[Record]) -> None:
        if not killed and len(reports(records)) >= 2:
            killed.append(starts(records)[0].workers[1].pid)
            os.kill(killed[0], signal.SIGKILL)

    bucket = ["--storage-path", "s3://bucket/ray", "--run-name", "killed", "--min-step-s", "0.05"]
    outcome = drive(with_keys(cluster, s3), [*job, *bucket], kill)
    assert outcome.code == 0, outcome.output[-4000:]
    assert len(starts(outcome.records)) == 2
    assert "exactly" in outcome.output
    assert by_step(outcome.records) == by_step(smooth.records)
    assert all(
        report.checkpoint.startswith("s3://bucket/ray/killed/")
        for report in reports(outcome.records)
    )
    filesystem, path = located("s3://bucket/ray/killed")
    with filesystem.open_input_stream(f"{path}/{SNAPSHOT}") as stream:
        results = json.loads(stream.read())["checkpoint_results"]
    listed = {item["checkpoint_dir_name"] for item in results}
    newest = RunDirectory(filesystem, path).checkpoints()[:2]
    # The kill may have left an older one, which was not accepted.
    assert listed == {item.rpartition("/")[2] for item in newest}


@pytest.mark.nightly  # without Ray: tests/training/test_token_files.py
@pytest.mark.ray
def test_tasks_of_ray_data_read_tokens_of_a_bucket(cluster: Cluster, s3: ObjectStore) -> None:
    """The losses are those of a file that the ranks read."""
    tokens = np.random.default_rng(0).integers(0, 50, 2000).astype(np.uint16)
    file = cluster.directory / "tokens.bin"
    tokens.tofile(file)
    filesystem, path = located("s3://bucket/tokens")
    for number, part in enumerate(np.split(tokens, [700, 1500])):
        with filesystem.open_output_stream(f"{path}/{number}.bin") as stream:
            stream.write(part.tobytes())
    job = ["--data", "tokens", "--model", "gpt-tiny", "--sequence-length", "16", "--epochs", "1"]
    job += ["--max-steps", "4", "--storage-path", str(cluster.directory / "tokens"), "--run-name"]
    losses = []
    for name, data in (("ddp", str(file)), ("ray_data", "s3://bucket/tokens")):
        argv = ["-m", f"training.jobs.{name}", *job, name, "--data-path", data]
        outcome = drive(with_keys(cluster, s3), argv)
        assert outcome.code == 0, outcome.output[-4000:]
        losses.append(by_step(outcome.records))
    assert list(losses[0]) == [4]
    assert losses[0] == losses[1]


@pytest.mark.nightly  # without Ray: tests/training/test_pictures_in_files.py
@pytest.mark.ray
def test_tasks_of_ray_data_read_pictures_of_a_bucket_and_resume(
    cluster: Cluster, s3: ObjectStore
) -> None:
    """The losses are those of the same files in a folder, which the ranks read."""
    job = ["--shape", "3x16x16", "--model", "mlp", "--batch-size", "4", "--epochs", "2"]
    job += ["--checkpoint-every-steps", "1", "--storage-path", str(cluster.directory / "pictures")]
    programs = {}
    for data in FORMATS:
        for name, place in (
            ("ddp", str(cluster.directory / data)),
            ("ray_data", f"s3://bucket/{data}"),
        ):
            written(place, data)
            argv = [f"training.jobs.{name}", *job, "--data", data, "--data-path", place]
            for run, steps in ((f"{name}-{data}", 3), (f"{name}-{data}-again", 6)):
                programs[run] = [*argv, "--run-name", f"{name}-{data}", "--max-steps", str(steps)]
    outcome = drive_each(with_keys(cluster, s3), programs)
    for data in FORMATS:
        of_ddp, of_ray = (outcome.of(f"{name}-{data}") for name in ("ddp", "ray_data"))
        assert list(by_step(of_ddp.records)) == [1, 2, 3, 4, 5, 6]
        assert by_step(of_ray.records) == by_step(of_ddp.records)
        assert "resumed at step 3, exactly" in outcome.of(f"ray_data-{data}-again").output


def with_keys(cluster: Cluster, store: ObjectStore) -> Cluster:
    """With the keys of the bucket in the environment of drivers and workers."""
    environment = {"runtime_env": {"env_vars": store.environment()}}
    keys = store.environment() | {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(environment)}
    return replace(cluster, environment=cluster.environment | keys)


def test_the_benchmark_measures_checkpoints_in_the_bucket_and_leaves_none(s3: ObjectStore) -> None:
    settings = benchmark.Settings(
        workers=1, width=8, batch_size=64, quick=True, storage_path="s3://bucket/bench"
    ).for_this_run()
    with one() as world:
        measured = saving.measure(world, settings, Path("/nowhere"))
    names = [method.name for method in measured.methods]
    assert names == ["torch.save, waited for", "torch.save, in the background"]
    assert all(method.size_bytes > measured.state_bytes for method in measured.methods)
    assert objects("s3://bucket/bench") == set()


def test_the_results_of_the_benchmark_are_uploaded(s3: ObjectStore, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "ray").mkdir(parents=True)
    (folder / "report.md").write_text("# Report\n")
    (folder / "results.json").write_text("{}")
    settings = benchmark.Settings(storage_path="s3://bucket/results")
    assert benchmark.uploaded(settings, folder) == "s3://bucket/results/mine"
    assert objects("s3://bucket/results/mine") == {"report.md", "results.json"}
    assert benchmark.uploaded(replace(settings, storage_path=""), folder) == str(folder)
    assert benchmark.of_ray(settings, folder) == "s3://bucket/results/mine/ray"
