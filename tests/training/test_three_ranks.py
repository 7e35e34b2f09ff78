"""Three ranks: shares that differ, and what stops one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.ranks import on_ranks
from training.checkpoint.in_folder import FolderCheckpoints
from training.data.examples import NoData
from training.loop.settings import TrainSettings
from training.loop.train import train
from training.loop.world import World, alone
from training.parallel.replicated import replicated
from training.stop import Stop

SETTINGS = TrainSettings(workers=3, batch_size=10, width=8, dropout=0.0, max_steps=6, epochs=1)
"""48 steps of 29 or 30 examples: shares of 9 and 10."""


def weights_after(world: World, folder: Path) -> dict[str, Any]:
    with FolderCheckpoints(folder, world.rank, world.size) as checkpoints:
        assert train(SETTINGS, world, checkpoints, replicated)["step"] == SETTINGS.max_steps
    world.wait()  # for rank 0's part, which has the model
    (saved,) = folder.glob("checkpoint_*")
    weights: dict[str, Any] = torch.load(saved / "model.pt", weights_only=True)
    return weights


def lacks(world: World) -> str:
    if world.rank == 1:
        raise NoData("/data is half downloaded")
    return "there"


def train_and_stop(world: World, folder: Path) -> tuple[dict[str, Any], str]:
    weights = weights_after(world, folder)
    assert world.together(lambda: world.rank) == world.rank
    with pytest.raises(Stop) as stopped:
        world.together(lambda: lacks(world))
    return weights, str(stopped.value)


def test_shares_that_differ_are_weighed_and_what_stops_one_rank_stops_all(tmp_path: Path) -> None:
    """To 1e-6, as for two ranks in test_replicated.py."""
    one = weights_after(alone("false"), tmp_path / "one")
    three = on_ranks(3, train_and_stop, tmp_path / "three")
    for name, weight in one.items():
        torch.testing.assert_close(three[0][0][name], weight, rtol=1e-5, atol=1e-6, msg=name)
    assert {text for _, text in three} == {"rank 1: /data is half downloaded"}


def test_failure_of_every_rank_names_no_rank() -> None:
    with pytest.raises(Stop, match=r"^nowhere$"):
        alone("false").together(nowhere)


def nowhere() -> None:
    raise NoData("nowhere")
