"""FSDP2 learns the same as DDP, with sharded models, and resumes with any number of ranks."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.training.ranks import on_ranks
from tests.training.runs import Did, close, one, own, ran, rest, weights
from training.jobs.fsdp2 import Settings
from training.loop.train import Parallelizer
from training.loop.world import World
from training.models.simple_cnn import SimpleCNN
from training.parallel.replicated import replicated
from training.parallel.sharded import Sharded
from training.stop import Stop
from training.techniques.blocks import compute_again
from training.techniques.precision import Precision

EXACT = Settings(
    model="convnet",
    data="digits",
    workers=3,
    batch_size=15,
    width=6,
    dropout=0.0,
    ema_decay=0.9,
    epochs=1,
    max_steps=8,
    checkpoint_every_steps=4,
    learning_rate=2e-3,
    warmup_steps=0,
)
"""Steps of 44 or 45 examples, over one, two or three ranks; 6 rows are not divisible by 4."""
NOISY = replace(EXACT, dropout=0.2, workers=2)
NORM = replace(EXACT, model="simple_cnn", width=4, max_steps=4, optimizer="sgd", learning_rate=0.1)
"""Its batch norm has statistics, which differ by rank."""
EPOCHS = replace(
    EXACT, batch_size=240, epochs=3, max_steps=0, checkpoint_every_steps=0, save_every_epochs=3
)
"""Two steps each; the first two are evaluated, with the moving average, and not saved."""


@dataclass(frozen=True)
class OfTwo:
    runs: dict[str, Did]
    overflowed: tuple[float, list[float]]


def did(
    world: World, folder: Path, settings: Settings, *, by_ddp: bool = False, die_at: int = 0
) -> Did:
    how: Parallelizer = replicated if by_ddp else partial(Sharded, sharding=settings)
    return ran(world, folder, settings, how, die_at=die_at)


def of_two(world: World, folder: Path) -> OfTwo:
    """All that two ranks do, so that they have to start only once."""
    full = replace(EXACT, checkpoint_form="full")
    short = replace(EXACT, max_steps=2)
    done = {
        "ddp": did(world, folder / "ddp", EXACT, by_ddp=True),
        "sharded": did(world, folder / "sharded", EXACT),
        "full": did(world, folder / "full", full),
        "replicas": did(world, folder / "replicas", replace(full, shards=1)),
        "again": did(world, folder / "again", replace(full, activation_checkpointing=True)),
        "norm": did(world, folder / "norm", NORM),
        "ddp norm": did(world, folder / "ddp norm", NORM, by_ddp=True),
        "accumulated": did(world, folder / "2x8", replace(short, accumulate=2, batch_size=8)),
        "at once": did(world, folder / "1x16", replace(short, batch_size=16)),
        "bf16": did(world, folder / "bf16", replace(EXACT, precision="bf16")),
        "fp16": did(world, folder / "fp16", replace(EXACT, precision="fp16")),
        "freed": did(world, folder / "freed", EPOCHS),
        "gathered": did(world, folder / "gathered", replace(EPOCHS, reshard_after_forward=False)),
        "noisy": did(world, folder / "noisy", NOISY),
        "killed": did(world, folder / "killed", NOISY, die_at=7),
    }
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(123)  # a new process begins with other generators
    done["resumed"] = did(world, folder / "killed", NOISY)

    did(world, folder / "half", replace(EXACT, max_steps=4))
    did(world, folder / "handed on", replace(full, max_steps=4))
    done["ddp after fsdp2"] = did(world, folder / "handed on", EXACT, by_ddp=True)
    did(world, folder / "handed over", replace(EXACT, max_steps=4), by_ddp=True)
    done["fsdp2 after ddp"] = did(world, folder / "handed over", EXACT)
    done["two after one"] = did(world, folder / "of one", EXACT)
    return OfTwo(done, overflowed(world))


def overflowed(world: World) -> tuple[float, list[float]]:
    """The loss scale, and a weight, after a gradient that is infinite in one rank's part."""
    model = nn.Linear(2, 2, bias=False)
    nn.init.ones_(model.weight)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    precision = Precision("fp16", world.device, casts_itself=True, in_parts=True)
    precision.backward(model(torch.ones(1, 2)).sum())
    gradient = model.weight.grad
    assert isinstance(gradient, DTensor)
    if world.rank == 1:
        gradient.to_local().fill_(float("inf"))
    precision.unscale(optimizer)
    precision.step(optimizer)
    return precision.scaler.get_scale(), own(model.weight).flatten().tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def of_one(folder: Path) -> Did:
    with one() as world:
        return did(world, folder / "of one", replace(EXACT, max_steps=4))


@pytest.fixture(scope="module")
def pair(folder: Path, of_one: Did) -> list[OfTwo]:
    return on_ranks(2, of_two, folder, timeout_s=280.0)


@pytest.fixture(scope="module")
def runs(pair: list[OfTwo]) -> dict[str, Did]:
    return pair[0].runs


@pytest.mark.parametrize("way", ["sharded", "full", "replicas", "again"])
def test_sharded_model_learns_as_ddp(way: str, runs: dict[str, Did], folder: Path) -> None:
    """In both forms of checkpoints, with several copies, and with activations computed again."""
    close(weights(folder / way), weights(folder / "ddp"))
    close(runs[way].losses, runs["ddp"].losses)


def test_sharded_model_learns_as_one_process(runs: dict[str, Did], folder: Path) -> None:
    alone = did(World(0, 1, 0, torch.device("cpu")), folder / "alone", EXACT, by_ddp=True)
    close(weights(folder / "sharded"), weights(folder / "alone"))
    close(runs["sharded"].losses, alone.losses)


def test_sharded_batch_norm_equals_that_of_ddp(runs: dict[str, Did], folder: Path) -> None:
    close(weights(folder / "norm"), weights(folder / "ddp norm"))
    close(runs["norm"].losses, runs["ddp norm"].losses)


def test_sharded_moving_average_equals_that_of_ddp(runs: dict[str, Did], folder: Path) -> None:
    full, ddp = (
        torch.load(max((folder / way).glob("checkpoint_*")) / "average.pt", weights_only=True)
        for way in ("full", "ddp")
    )
    assert full["steps"] == ddp["steps"] == EXACT.max_steps
    close(full["average"], ddp["average"])


def test_a_step_after_an_evaluation_does_not_compute_with_the_average(
    runs: dict[str, Did],
) -> None:
    close(runs["gathered"].losses, runs["freed"].losses)


def test_statistics_of_blocks_that_are_computed_again_are_agreed_on_too() -> None:
    with one() as world:
        model = SimpleCNN(1, 10, width=4)
        compute_again(model)
        of_norms = Sharded(model, world, NORM, NORM)._statistics
    assert [item.numel() for item in of_norms] == [4, 4, 8, 8, 16, 16]


def test_a_rank_has_a_part_of_the_weights_and_of_the_optimiser(runs: dict[str, Did]) -> None:
    """Half of them on each of two ranks, except for rows that do not divide evenly."""
    ddp, sharded, replicas = runs["ddp"], runs["sharded"], runs["replicas"]
    assert ddp.own_bytes == replicas.own_bytes == ddp.whole_bytes
    assert sharded.own_bytes < 0.55 * ddp.own_bytes
    assert sharded.optimizer_bytes < 0.55 * ddp.optimizer_bytes


def test_accumulated_micro_batches_are_one_large_batch(runs: dict[str, Did], folder: Path) -> None:
    close(weights(folder / "2x8"), weights(folder / "1x16"))
    close(runs["accumulated"].losses, runs["at once"].losses)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_training_with_reduced_precision_learns(precision: str, runs: dict[str, Did]) -> None:
    ours, theirs = runs[precision].losses, runs["ddp"].losses
    assert ours == pytest.approx(theirs, rel=2e-3)
    assert ours != theirs


def test_a_killed_run_resumes_with_the_very_same_losses(runs: dict[str, Did], folder: Path) -> None:
    smooth, killed, resumed = (runs[name].losses for name in ("noisy", "killed", "resumed"))
    assert sorted(killed) == [1, 2, 3, 4, 5, 6]
    assert resumed == {step: smooth[step] for step in (5, 6, 7, 8)}
    for name, weight in weights(folder / "killed").items():
        assert torch.equal(weight, weights(folder / "noisy")[name]), name


@pytest.mark.parametrize("way", ["ddp after fsdp2", "fsdp2 after ddp", "two after one"])
def test_sharded_and_full_checkpoints_resume_each_other(way: str, runs: dict[str, Did]) -> None:
    close(runs[way].losses, rest(runs["ddp"]))


def test_one_rank_continues_from_what_two_saved(runs: dict[str, Did], folder: Path) -> None:
    shutil.copytree(folder / "half", folder / "one")
    with one() as world:
        close(did(world, folder / "one", EXACT).losses, rest(runs["ddp"]))


def test_three_ranks_continue_from_what_two_saved(runs: dict[str, Did], folder: Path) -> None:
    shutil.copytree(folder / "half", folder / "three")
    run, *_ = on_ranks(3, did, folder / "three", EXACT, timeout_s=280.0)
    close(run.losses, rest(runs["ddp"]))


def test_a_step_that_overflows_on_one_rank_is_left_out_by_all(pair: list[OfTwo]) -> None:
    assert [rank.overflowed for rank in pair] == [(2.0**15, [1.0, 1.0])] * 2


def test_a_damaged_part_costs_the_steps_since_the_checkpoint_before(
    runs: dict[str, Did], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "sharded", folder / "damaged")
    part = max((folder / "damaged").glob("checkpoint_*")) / "__1_0.distcp"
    part.write_bytes(part.read_bytes()[:-1])
    with one() as world:
        close(did(world, folder / "damaged", EXACT).losses, rest(runs["ddp"]))
    assert "__1_0.distcp has" in capsys.readouterr().out


def test_the_checkpoint_of_another_width_is_refused(runs: dict[str, Did], folder: Path) -> None:
    for form in ("sharded", "full"):
        with one() as world, pytest.raises(Stop, match=r"in the checkpoint and .* in the model"):
            did(world, folder / form, replace(EXACT, width=8))


def test_ddp_refuses_a_model_in_parts_and_reports_who_can_read_it(
    runs: dict[str, Did], folder: Path
) -> None:
    with one() as world, pytest.raises(Stop, match="--checkpoint-form full"):
        did(world, folder / "half", EXACT, by_ddp=True)


def test_copies_that_ranks_do_not_make_up_are_refused(folder: Path) -> None:
    with one() as world, pytest.raises(Stop, match="1 ranks do not make copies of 2"):
        did(world, folder / "none", replace(EXACT, shards=2))
