"""torch.compile, if the host has a compiler; otherwise the job reports it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.ranks import on_ranks
from training.checkpoint.in_folder import FolderCheckpoints
from training.loop.settings import TrainSettings
from training.loop.train import train
from training.loop.world import World, alone
from training.parallel.replicated import replicated
from training.stop import Stop
from training.techniques import compiled

SETTINGS = TrainSettings(
    model="mlp",
    workers=2,
    batch_size=8,
    width=8,
    max_steps=4,
    warmup_steps=0,
    dropout=0.0,
    activation_checkpointing=True,
)


def weights_after(world: World, folder: Path, settings: TrainSettings) -> dict[str, Any]:
    with FolderCheckpoints(folder, world.rank, world.size) as checkpoints:
        result = train(settings, world, checkpoints, replicated)
    assert result["step"] == settings.max_steps
    world.wait()  # until rank 0 has written its part
    newest = max(folder.glob("checkpoint_*"))
    weights: dict[str, Any] = torch.load(newest / "model.pt", weights_only=True)
    return weights


@pytest.mark.nightly  # compilation takes minutes of CPU time
@pytest.mark.slow
def test_compiled_ranks_learn_the_same_and_their_checkpoints_go_both_ways(tmp_path: Path) -> None:
    """To 1e-5, since fused operations round in another order."""
    fast = replace(SETTINGS, compile=True)
    if not all(compiled.needs(torch.device("cpu")).values()):
        with pytest.raises(Stop, match="compile=true needs"):
            weights_after(alone("false"), tmp_path, fast)
        return
    plain = weights_after(alone("false"), tmp_path / "plain", SETTINGS)
    found, _ = on_ranks(2, weights_after, tmp_path / "compiled", fast)
    assert list(found) == list(plain)
    for name, weight in plain.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-5, msg=name)
    more = replace(SETTINGS, max_steps=6)
    here, there = (
        weights_after(alone("false"), tmp_path / way, more) for way in ("plain", "compiled")
    )
    for name, weight in here.items():
        torch.testing.assert_close(there[name], weight, rtol=1e-4, atol=1e-5, msg=name)
