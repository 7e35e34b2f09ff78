"""Ray Data as the source of a run's examples: what it streams, and what is learnt from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.cluster import Cluster, Outcome, drive
from tests.training.scripts.streaming import SETTINGS, dealt
from training.checkpoint.in_folder import FolderCheckpoints
from training.data import digits
from training.data.examples import Batch
from training.data.loader import Loader
from training.data.streamed import Block, UnexpectedStreamError, cut
from training.jobs.ray_data import Settings
from training.loop.train import train
from training.loop.world import alone
from training.parallel.replicated import replicated

Steps = list[list[Batch]]


def block(*numbers: int) -> Block:
    column = np.array(numbers, np.int64)
    return {"number": column, "inputs": column[:, None] * 0.5, "targets": -column}


def micro_batches(*parts: list[int]) -> list[Any]:
    return [np.array(part, np.int64) for part in parts]


def test_micro_batches_are_cut_wherever_blocks_end() -> None:
    blocks = [block(5, 3), block(8), block(1, 9, 2, 7)]
    found = list(cut(blocks, micro_batches([5], [3, 8, 1], [9, 2, 7])))
    assert [targets.tolist() for _, targets in found] == [[-5], [-3, -8, -1], [-9, -2, -7]]
    assert found[0][0].tolist() == [[2.5]]


def test_a_stream_with_other_examples_is_refused() -> None:
    with pytest.raises(UnexpectedStreamError, match="other examples than the sampler dealt"):
        list(cut([block(5, 3)], micro_batches([5], [4])))


def test_a_stream_that_ends_too_early_is_refused() -> None:
    with pytest.raises(UnexpectedStreamError, match="ended 2 examples too early"):
        list(cut([block(5, 3)], micro_batches([5], [3, 4, 2])))


@pytest.fixture(scope="module")
def streamed(cluster: Cluster) -> dict[str, Any]:
    file = cluster.directory / "streamed.pt"
    outcome = drive(cluster, ["-m", "tests.training.scripts.streaming", str(file)])
    assert outcome.code == 0, outcome.output[-4000:]
    found: dict[str, Any] = torch.load(file)
    return found


def loaded(rank: int, epoch: int, after: int = 0) -> Steps:
    loader = Loader(digits.load().train, dealt(rank), SETTINGS_OF_A_RANK)
    return [list(step.micro_batches) for step in loader.epoch(epoch, after)]


SETTINGS_OF_A_RANK = Settings(batch_size=SETTINGS.batch_size, loader_workers=0)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("rank", [0, 1])
def test_each_rank_is_streamed_what_the_data_loader_gives_it(
    streamed: dict[str, Any], rank: int
) -> None:
    """To the last bit, step by step: the same examples once an epoch, augmented alike."""
    for epoch in (0, 1):
        same(streamed["two epochs"][rank][epoch], loaded(rank, epoch))


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("rank", [0, 1])
def test_an_epoch_continues_in_its_midst(streamed: dict[str, Any], rank: int) -> None:
    same(streamed["resumed"][rank], loaded(rank, 1, after=20))


@pytest.mark.slow
@pytest.mark.ray
def test_data_that_a_task_does_not_find_are_reported_as_such(streamed: dict[str, Any]) -> None:
    assert streamed["no data"] == "the pictures are gone"


def same(found: Steps, expected: Steps) -> None:
    assert len(found) == len(expected)
    for own, other in zip(found, expected, strict=True):
        assert len(own) == len(other)
        for mine, wanted in zip(own, other, strict=True):
            assert torch.equal(mine[0], wanted[0])
            assert torch.equal(mine[1], wanted[1])


SHORT = {"batch_size": 15, "width": 8, "dropout": 0.0, "epochs": 1}


@pytest.fixture(scope="module")
def jobs(cluster: Cluster) -> tuple[Outcome, Outcome]:
    """Stopped after 12 of its 48 steps, and resumed up to the 20th."""
    flags = [text for name, value in SHORT.items() for text in (f"--{name}", str(value))]
    results = ["--storage-path", str(cluster.directory / "results"), "--run-name", "streamed"]
    argv = ["-m", "training.jobs.ray_data", "--workers", "2", *flags, *results]
    return (
        drive(cluster, [*argv, "--max-steps", "12"]),
        drive(cluster, [*argv, "--max-steps", "20"]),
    )


@pytest.mark.nightly  # the stream itself: the tests above
@pytest.mark.slow
@pytest.mark.ray
def test_the_job_continues_exactly_within_an_epoch(jobs: tuple[Outcome, Outcome]) -> None:
    for outcome in jobs:
        assert outcome.code == 0, outcome.output[-4000:]
    assert "resumed at step 12, exactly" in jobs[1].output
    assert "after 20 steps" in jobs[1].output


@pytest.mark.nightly  # the stream itself: the tests above
@pytest.mark.slow
@pytest.mark.ray
def test_the_job_learns_what_one_process_does_with_the_data_loader(
    cluster: Cluster, jobs: tuple[Outcome, Outcome], tmp_path: Path
) -> None:
    """The bounds are those of test_replicated."""
    settings = Settings(workers=2, max_steps=20, loader_workers=0, **SHORT)  # type: ignore[arg-type]
    with FolderCheckpoints(tmp_path, 0, 1) as checkpoints:
        assert train(settings, alone("false"), checkpoints, replicated)["step"] == 20
    newest = max((cluster.directory / "results" / "streamed").glob("checkpoint_*/"))
    found = torch.load(newest / "model.pt", weights_only=True)
    expected = torch.load(max(tmp_path.glob("checkpoint_*")) / "model.pt", weights_only=True)
    assert jobs[1].code == 0
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-5, atol=1e-6, msg=name)
