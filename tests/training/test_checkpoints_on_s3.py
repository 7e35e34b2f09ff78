"""Checkpoints in a bucket: saved, verified, rotated and resumed, on a server that fails."""

from __future__ import annotations

import pickle
import random
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from pyarrow.fs import FileSelector  # type: ignore[import-untyped]

from tests.training.object_store import Kind, ObjectStore
from tests.training.test_checkpointed import ALONE, SMALL, Killed
from training import telemetry
from training.checkpoint import filesystem as files
from training.checkpoint.filesystem import StorageUnusable, located, probe
from training.checkpoint.in_folder import FolderCheckpoints
from training.checkpoint.restore import NoUsableCheckpoint
from training.checkpoint.storage import Best, RunDirectory
from training.jobs.checkpointed import Settings
from training.loop import train as loop
from training.parallel.replicated import replicated

pytestmark = pytest.mark.usefixtures("one_thread")

FILE = "state.pt"


@pytest.fixture
def run(s3: ObjectStore) -> RunDirectory:
    return RunDirectory(*located(f"s3://bucket/runs/{uuid.uuid4().hex}"))


def opened(run: RunDirectory, *, keep: int = 3, best: Best | None = None) -> FolderCheckpoints:
    return FolderCheckpoints(run, 0, 1, in_background=False, keep=keep, best=best)


def save(run: RunDirectory, *steps: int, keep: int = 3) -> None:
    with opened(run, keep=keep) as checkpoints:
        for step in steps:
            checkpoints.report({"step": float(step)}, step, {FILE: {"step": step}})


def kept(run: RunDirectory) -> list[int]:
    return sorted(int(path.rpartition("_")[2]) for path in run.checkpoints())


def resumed_from(run: RunDirectory) -> int | None:
    with opened(run) as checkpoints, checkpoints.newest() as directory:
        if directory is None:
            return None
        return int(torch.load(directory / FILE, weights_only=True)["step"])


def write(run: RunDirectory, name: str, content: bytes) -> None:
    with run.filesystem.open_output_stream(f"{run.path}/{name}") as stream:
        stream.write(content)


def test_the_newest_ones_are_kept_and_the_newest_is_resumed(run: RunDirectory) -> None:
    assert resumed_from(run) is None
    save(run, 10, 20, 30, 40, keep=2)
    assert kept(run) == [30, 40]
    left = run.filesystem.get_file_info(FileSelector(run.path, recursive=True))
    assert {item.path.split("/")[3] for item in left} == {
        "checkpoint_000000000030",
        "checkpoint_000000000040",
    }, "no object of a deleted checkpoint is left"
    assert resumed_from(run) == 40


def test_a_corrupted_newest_one_is_not_used(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 10, 20)
    write(run, f"checkpoint_000000000020/{FILE}", b"another object")
    assert resumed_from(run) == 10
    assert "checkpoint_000000000020 is not used: state.pt has 14 of" in capsys.readouterr().out
    save(run, 20, 30)
    assert resumed_from(run) == 30


def test_an_upload_that_was_cut_off_is_not_used(run: RunDirectory, s3: ObjectStore) -> None:
    """The manifest is the last object."""
    save(run, 10)
    names = [at.path.rpartition("/")[2] for at in s3.requests if at.method == "PUT" and at.path]
    assert names[-1].startswith("manifest-0.json") or any("manifest" in at for at in names[-3:])
    write(run, f"checkpoint_000000000020/{FILE}", b"half")
    assert resumed_from(run) == 10


def test_without_a_whole_one_the_run_stops(run: RunDirectory) -> None:
    save(run, 10)
    write(run, f"checkpoint_000000000010/{FILE}", b"x")
    with pytest.raises(NoUsableCheckpoint, match=f"no checkpoint in s3://{run.path} is whole"):
        resumed_from(run)


@pytest.mark.parametrize("kind", [Kind.SLOW_DOWN, Kind.INTERNAL_ERROR, Kind.TORN])
def test_failed_requests_are_repeated(kind: Kind, run: RunDirectory, s3: ObjectStore) -> None:
    """One of each kind: the upload, its manifest, the list, and the download."""
    s3.fail(kind, "PUT", FILE)
    s3.fail(kind, "PUT", "manifest-0.json")
    s3.fail(kind, "GET", "list-type")
    save(run, 10)
    s3.fail(kind, "GET", FILE)
    assert resumed_from(run) == 10
    assert s3.failed() == 4


def test_a_storage_that_stays_unavailable_is_an_error_and_no_damage(
    run: RunDirectory, s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ATTEMPTS", 2)
    save(run, 10)
    impatient = RunDirectory(located(f"s3://{run.path}")[0], run.path)
    s3.fail(Kind.SLOW_DOWN, "GET", FILE, times=2)
    why = rf"s3://{run.path}/\w+10 cannot be read: the server fails"
    with pytest.raises(OSError, match=why):
        resumed_from(impatient)
    assert resumed_from(impatient) == 10, "it is used when the storage responds again"
    s3.fail(Kind.INTERNAL_ERROR, "PUT", FILE, times=2)
    with pytest.raises(OSError, match=r"state.pt"):
        save(impatient, 20)
    assert resumed_from(impatient) == 10


def test_a_copy_of_the_file_system_in_another_process_is_as_patient(s3: ObjectStore) -> None:
    filesystem, path = located("s3://bucket/runs")
    copied = pickle.loads(pickle.dumps(filesystem))
    s3.fail(Kind.SLOW_DOWN, "PUT", "object", times=3)
    with copied.open_output_stream(f"{path}/object") as stream:
        stream.write(b"content")
    assert s3.failed() == 3, "pyarrow's default is 3 attempts"


def test_a_slow_storage_does_not_delay_training(run: RunDirectory, s3: ObjectStore) -> None:
    s3.fail(Kind.SLOW, "PUT", FILE, delay_s=1.0)
    with FolderCheckpoints(run, 0, 1) as checkpoints:
        checkpoints.report({}, 10, {FILE: {"step": 10}})
        assert not [at for at in s3.requests if at.method == "PUT" and FILE in at.path]
    assert kept(run) == [10]


SCORES = {10: 0.5, 20: 0.1, 30: 0.4, 40: float("nan"), 50: 0.3, 60: 0.9}


@pytest.mark.parametrize(
    ("highest", "expected"), [(False, [20, 50, 60]), (True, [10, 60])], ids=["min", "max"]
)
def test_the_best_ones_and_the_newest_are_kept(
    highest: bool, expected: list[int], run: RunDirectory, tmp_path: Path
) -> None:
    """Also after a restart, and the same in a folder."""
    best = Best(2, "held_out_loss", highest)
    for where in (run, RunDirectory(*located(str(tmp_path)))):
        for steps in (list(SCORES)[:3], list(SCORES)[3:]):
            with opened(where, best=best) as checkpoints:
                for step in steps:
                    metrics = {"held_out_loss": SCORES[step]}
                    checkpoints.report(metrics, step, {FILE: {"step": step}})
        assert kept(where) == expected
        assert resumed_from(where) == 60
        assert where.metrics(where.checkpoints()[0]) == {"held_out_loss": 0.9}


def losses(run: RunDirectory, settings: Settings, die_at: int = 0) -> dict[int, float]:
    done: dict[int, float] = {}

    def step(*, loss: float, step: int = 0, **_: Any) -> None:
        if step == die_at:
            raise Killed
        done[step] = float(loss)

    with patch.object(telemetry, "step", step), opened(run) as checkpoints:
        loop.train(settings, ALONE, checkpoints, replicated)
    return done


def weights(run: RunDirectory) -> dict[str, torch.Tensor]:
    with run.opened(run.checkpoints()[0]) as directory:
        loaded: dict[str, torch.Tensor] = torch.load(
            Path(directory) / "model.pt", weights_only=True
        )
    return loaded


def test_a_killed_run_resumes_with_the_same_losses_and_weights(
    run: RunDirectory, s3: ObjectStore
) -> None:
    """Within the second epoch, with requests that fail in all of its phases."""
    settings = replace(SMALL, max_steps=30)
    smooth = RunDirectory(run.filesystem, f"{run.path}-smooth")
    expected = losses(smooth, settings)
    s3.fail(Kind.SLOW_DOWN, "PUT", run.path.rpartition("/")[2], times=2)
    with pytest.raises(Killed):
        losses(run, settings, die_at=26)
    torch.manual_seed(123)  # a new process begins with other generators
    random.seed(123)
    np.random.seed(123)
    s3.fail(Kind.TORN, "GET", "model.pt")
    resumed = losses(run, settings)
    assert resumed == {step: expected[step] for step in range(24, 31)}
    torch.testing.assert_close(weights(run), weights(smooth), rtol=0, atol=0)
    assert s3.failed() == 3


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("s3://nowhere/runs", "there is no bucket nowhere"),
        ("s3:///runs", "names no bucket"),
        ("s3://id:key@bucket/runs", "s3://bucket/runs contains credentials"),
        ("s3://bucket/runs?endpoint=x", "endpoint is not an option of S3"),
        ("s3://bucket/runs?scheme=http&endpoint_override=127.0.0.1:1", "127.0.0.1:1 does not"),
    ],
)
def test_an_unusable_storage_is_reported_with_the_reason(
    path: str, why: str, s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ATTEMPTS_OF_PROBE", 1)
    with pytest.raises(StorageUnusable, match=why) as raised:
        probe(path)
    assert "key" not in str(raised.value)


def test_denied_access_is_reported_with_what_is_needed(
    s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ATTEMPTS_OF_PROBE", 1)
    s3.fail(Kind.DENIED, times=9)
    with pytest.raises(StorageUnusable, match="access denied; the workers need AWS_ACCESS_KEY_ID"):
        probe("s3://bucket/runs")


def test_a_usable_storage_keeps_nothing_of_the_probe(s3: ObjectStore) -> None:
    probe("s3://bucket/probed")
    filesystem, path = located("s3://bucket/probed")
    assert not [
        item.path
        for item in filesystem.get_file_info(FileSelector(path, allow_not_found=True))
        if item.is_file
    ]
