"""A model in stages learns the same as the unsplit model, by either schedule."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tests.training.ranks import on_ranks
from tests.training.runs import Did, close, one, ran, rest, weights
from training.data.example_random import Draws
from training.data.examples import Batch, Data
from training.jobs.pipeline import Settings
from training.loop.world import World, alone
from training.models.mlp import MLP as MLPModel
from training.parallel.pipelined import Pipelined
from training.parallel.settings import ShardSettings
from training.parallel.sharded import Sharded
from training.parallel.single_device import whole
from training.stop import Stop

MLP = Settings(
    model="mlp",
    data="digits",
    batch_size=8,
    accumulate=3,
    width=6,
    dropout=0.0,
    ema_decay=0.9,
    epochs=1,
    max_steps=6,
    checkpoint_every_steps=3,
    warmup_steps=0,
    pipeline="gpipe",
)
"""Steps of 23 or 24 examples: micro-batches are not all of a size. Three blocks in two stages."""
GPT = replace(
    MLP,
    model="gpt-tiny",
    pipeline="1f1b",
    accumulate=4,
    batch_size=2,
    max_steps=4,
    optimizer="sgd",
    learning_rate=0.1,
)
"""The weights of its tokens are those of its head too: the first stage and the last share them.
Not by Adam: it makes steps out of the rounding of a gradient that is 0, as that of keys' biases.
"""
ONES = replace(MLP, batch_size=1, accumulate=2, max_steps=3)
"""1,437 is not a multiple: in the first steps one of the micro-batches has two examples."""
NOISY = replace(MLP, dropout=0.3, pipeline="1f1b")


@dataclass(frozen=True)
class Tokens:
    """Each is the one before and 1, of 12."""

    count: int

    def __len__(self) -> int:
        return self.count

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        tokens = torch.from_numpy((examples[:, None] + np.arange(7)) % 12)
        return tokens[:, :-1], tokens[:, 1:]


TOKENS = Data(name="tokens", train=Tokens(94), held_out=Tokens(12), shape=(6,), classes=12)


def did(world: World, folder: Path, settings: Settings, die_at: int = 0) -> Did:
    data = TOKENS if settings.model.startswith("gpt") else None
    how = partial(Pipelined, pipeline=settings)
    return ran(world, folder, settings, how, data=data, die_at=die_at)


def of_two(world: World, folder: Path) -> dict[str, Did]:
    """All that two ranks do, so that they have to start only once."""
    runs = {
        "mlp": did(world, folder / "mlp", MLP),
        "1f1b": did(world, folder / "1f1b", replace(MLP, pipeline="1f1b")),
        "ones": did(world, folder / "ones", ONES),
        "gpt": did(world, folder / "gpt", GPT),
        "again": did(world, folder / "again", replace(GPT, activation_checkpointing=True)),
        "bf16": did(world, folder / "bf16", replace(MLP, precision="bf16")),
        "fp16": did(world, folder / "fp16", replace(MLP, precision="fp16")),
        "noisy": did(world, folder / "noisy", NOISY),
        "killed": did(world, folder / "killed", NOISY, die_at=5),
    }
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(123)  # a new process begins with other generators
    runs["resumed"] = did(world, folder / "killed", NOISY)
    runs["two after one"] = did(world, folder / "of one", MLP)
    did(world, folder / "half", replace(MLP, max_steps=3))
    return runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipeline")


@pytest.fixture(scope="module")
def unsplit(folder: Path) -> dict[str, Did]:
    """The unsplit model, in one process."""
    world = alone("false")
    mlp, ones, gpt = (replace(settings, workers=1) for settings in (MLP, ONES, GPT))
    return {
        "mlp": ran(world, folder / "whole mlp", mlp, whole),
        "ones": ran(world, folder / "whole ones", ones, whole),
        "gpt": ran(world, folder / "whole gpt", gpt, whole, data=TOKENS),
    }


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Did]:
    with one() as world:
        did(world, folder / "of one", replace(MLP, workers=1, max_steps=3))
    first, second = on_ranks(2, of_two, folder, timeout_s=280.0)
    assert first["mlp"].own_bytes + second["mlp"].own_bytes == WEIGHTS_BYTES
    return first


WEIGHTS_BYTES = 4 * ((64 + 1) * 6 + 2 * (6 + 1) * 6 + (6 + 1) * 10)


@pytest.mark.parametrize(
    ("way", "model"),
    [("mlp", "mlp"), ("1f1b", "mlp"), ("ones", "ones"), ("gpt", "gpt"), ("again", "gpt")],
)
def test_stages_learn_what_the_whole_model_learns(
    way: str, model: str, runs: dict[str, Did], unsplit: dict[str, Did], folder: Path
) -> None:
    """By both schedules, with a weight that two stages share, and activations computed again."""
    close(runs[way].losses, unsplit[model].losses)
    close(weights(folder / way), weights(folder / f"whole {model}"))


def test_the_examples_of_a_step_count_once(runs: dict[str, Did], unsplit: dict[str, Did]) -> None:
    assert runs["mlp"].samples == unsplit["mlp"].samples


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_training_with_reduced_precision_learns(precision: str, runs: dict[str, Did]) -> None:
    ours, theirs = runs[precision].losses, runs["mlp"].losses
    assert ours == pytest.approx(theirs, rel=2e-3)
    assert ours != theirs


def test_a_killed_run_resumes_with_the_very_same_losses(runs: dict[str, Did], folder: Path) -> None:
    smooth, killed, resumed = (runs[name].losses for name in ("noisy", "killed", "resumed"))
    assert sorted(killed) == [1, 2, 3, 4]
    assert resumed == {step: smooth[step] for step in (4, 5, 6)}
    for name, weight in weights(folder / "killed").items():
        assert torch.equal(weight, weights(folder / "noisy")[name]), name


def test_another_number_of_stages_continues_from_it(
    runs: dict[str, Did], unsplit: dict[str, Did], folder: Path
) -> None:
    close(runs["two after one"].losses, rest(unsplit["mlp"], 3))
    shutil.copytree(folder / "half", folder / "one")
    with one() as world:
        alone_again = did(world, folder / "one", replace(MLP, workers=1))
    close(alone_again.losses, rest(unsplit["mlp"], 3))


def test_fsdp2_continues_from_it(
    runs: dict[str, Did], unsplit: dict[str, Did], folder: Path
) -> None:
    shutil.copytree(folder / "half", folder / "sharded")
    settings, how = replace(MLP, workers=1), partial(Sharded, sharding=ShardSettings())
    with one() as world:
        sharded = ran(world, folder / "sharded", settings, how)
    close(sharded.losses, rest(unsplit["mlp"], 3))


@pytest.mark.parametrize(
    ("model", "stages", "accumulate", "why"),
    [
        (MLPModel((1, 8, 8), 10), 2, 1, "take --accumulate 2 or more"),
        (MLPModel((1, 8, 8), 10), 4, 4, "3 blocks do not go round 4 stages: take fewer workers"),
        (nn.Linear(2, 2), 2, 2, "Linear does not define `before` and `after` its blocks"),
    ],
)
def test_model_that_cannot_be_split_is_refused(
    model: nn.Module, stages: int, accumulate: int, why: str
) -> None:
    settings = replace(MLP, accumulate=accumulate, pipeline="1f1b")
    world = World(0, stages, 0, torch.device("cpu"))
    with pytest.raises(Stop, match=why):
        Pipelined(model, world, settings, pipeline=settings)
