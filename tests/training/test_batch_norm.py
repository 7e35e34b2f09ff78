"""Batch norm statistics differ by rank; the checkpoint contains those of rank 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.ranks import on_ranks
from training.checkpoint.in_folder import FolderCheckpoints
from training.data import synthetic
from training.loop.settings import TrainSettings
from training.loop.train import train
from training.loop.world import World
from training.models import build
from training.models.settings import ModelSettings
from training.parallel.replicated import replicated
from training.techniques.blocks import compute_again

MEAN = "features.0.1.running_mean"


def losses_of(world: World, folder: Path) -> list[float]:
    """Straight on, and with a stop within an epoch: two folders."""
    data = synthetic.images((1, 8, 8), 3, 96)
    losses = []
    for name, stops in (("straight", [6]), ("stopped", [4, 6])):
        for stop in stops:
            settings = TrainSettings(
                model="simple_cnn",
                width=4,
                workers=2,
                batch_size=8,
                accumulate=2,
                epochs=9,
                max_steps=stop,
            )
            with FolderCheckpoints(folder / name, world.rank, world.size) as checkpoints:
                result = train(settings, world, checkpoints, replicated, data)
        losses.append(result["held_out_loss"])
    return losses


def saved(folder: Path) -> dict[str, Any]:
    newest = max(folder.glob("checkpoint_*"))
    state: dict[str, Any] = torch.load(newest / "model.pt", weights_only=True)
    return state


def test_two_ranks_with_batch_norm_resume_exactly(tmp_path: Path) -> None:
    """DDP gives rank 0's statistics to all before each step and each evaluation."""
    losses, other_losses = on_ranks(2, losses_of, tmp_path)
    assert losses[0] == losses[1]
    assert losses == other_losses
    straight, stopped = saved(tmp_path / "straight"), saved(tmp_path / "stopped")
    assert float(straight[MEAN].abs().max()) > 0
    for name, value in straight.items():
        assert torch.equal(value, stopped[name]), name


@pytest.mark.parametrize("compiled", [False, True])
def test_recomputed_batch_norm_is_not_updated_twice(compiled: bool) -> None:
    def buffers(*, again: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = build(ModelSettings(model="simple_cnn", width=4), (1, 8, 8), 3)
        images = torch.randn(3, 4, 1, 8, 8)
        if again:
            compute_again(model)
        if compiled:
            model.compile(backend="aot_eager")
        for batch in images:
            torch.autograd.backward(model(batch).square().sum())
        model.eval()
        with torch.no_grad():
            model(images[0])
        return {name: value for name, value in model.state_dict().items() if "running" in name}

    once, again = buffers(again=False), buffers(again=True)
    assert len(once) == 6
    for name, value in once.items():
        torch.testing.assert_close(again[name], value, msg=name)
