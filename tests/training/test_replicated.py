"""DDP on two processes is one process on the union of their batches, however it is switched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from tests.training.ranks import on_ranks
from tests.training.runs import one as one_rank
from training.checkpoint.in_folder import FolderCheckpoints
from training.loop.settings import TrainSettings
from training.loop.train import train
from training.loop.world import World, alone
from training.parallel.replicated import replicated
from training.stop import Stop
from training.techniques import hooks

SETTINGS = TrainSettings(
    workers=2, batch_size=15, width=8, dropout=0.0, warmup_steps=3, max_steps=12, epochs=1
)
"""1,437 is not a multiple of 15: the shares differ by one."""
WIDE = replace(SETTINGS, model="mlp", width=512, bucket_mb=1, max_steps=48)
"""More than a megabyte of weights: several buckets."""
SWITCHED = {
    "plain": SETTINGS,
    "accumulated": replace(SETTINGS, batch_size=5, accumulate=3),
    "static": replace(SETTINGS, static_graph=True),
    "static and accumulated": replace(
        SETTINGS, static_graph=True, batch_size=5, accumulate=3, activation_checkpointing=True
    ),
    "fused": replace(SETTINGS, fused=True),
    "a rank a host": replace(SETTINGS, hierarchical=1),
    "a host": replace(SETTINGS, hierarchical=2),
    "wide": WIDE,
    "wide, fp16": replace(WIDE, comm_hook="fp16"),
    "wide, bf16": replace(WIDE, comm_hook="bf16"),
    "wide, powersgd": replace(WIDE, comm_hook="powersgd", powersgd_rank=4, powersgd_after=3),
    "wide, a rank a host, bf16": replace(WIDE, hierarchical=1, comm_hook="bf16"),
}


@dataclass
class Learnt:
    weights: dict[str, Tensor]
    loss: float
    """The mean of all steps."""


def learn(world: World, folder: Path, settings: TrainSettings) -> Learnt:
    with FolderCheckpoints(folder, world.rank, world.size) as checkpoints:
        result = train(settings, world, checkpoints, replicated)
    assert result["step"] == settings.max_steps
    world.wait()  # until rank 0 has written its part
    newest = max(folder.glob("checkpoint_*"))
    weights: dict[str, Any] = torch.load(newest / "model.pt", weights_only=True)
    return Learnt(weights, result["loss"])


def learn_all(world: World, folder: Path) -> tuple[dict[str, Learnt], list[int]]:
    learnt = {name: learn(world, folder / name, settings) for name, settings in SWITCHED.items()}
    return learnt, all_reduces(world, folder, replace(SWITCHED["accumulated"], max_steps=4))


def all_reduces(world: World, folder: Path, settings: TrainSettings) -> list[int]:
    """The numbers that each of them sent."""
    counted: list[int] = []

    def counting(ddp: Any, *_: object) -> None:
        def hook(state: object, bucket):  # type: ignore[no-untyped-def] # DDP accepts no annotations
            counted.append(bucket.buffer().numel())
            return allreduce_hook(None, bucket)  # type: ignore[arg-type]

        ddp.register_comm_hook(None, hook)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hooks, "install", counting)
        learn(world, folder / "counted", settings)
    return counted


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Learnt], list[int]]:
    return on_ranks(2, learn_all, tmp_path_factory.mktemp("two"))[0]


@pytest.fixture(scope="module")
def two(ranks: tuple[dict[str, Learnt], list[int]]) -> dict[str, Learnt]:
    return ranks[0]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Learnt:
    return learn(alone("false"), tmp_path_factory.mktemp("one"), SETTINGS)


def farthest(one: Learnt, other: Learnt) -> float:
    return max(float((one.weights[name] - other.weights[name]).abs().max()) for name in one.weights)


@pytest.mark.parametrize(
    "switched",
    [
        "plain",
        "accumulated",
        "static",
        "static and accumulated",
        "fused",
        "a rank a host",
        "a host",
    ],
)
def test_two_processes_learn_what_one_does_from_the_union_of_their_batches(
    switched: str, one: Learnt, two: dict[str, Learnt]
) -> None:
    """To 5e-6: float32 has a unit of 6e-8 at 1, and 12 steps of Adam stretch the sums' rounding."""
    assert list(one.weights) == list(two[switched].weights)
    for name, weight in one.weights.items():
        torch.testing.assert_close(
            two[switched].weights[name], weight, rtol=1e-5, atol=5e-6, msg=name
        )


def test_accumulation_of_three_in_one_process_is_a_batch_three_times_as_large(
    tmp_path: Path, one: Learnt
) -> None:
    small = learn(alone("false"), tmp_path, replace(SETTINGS, batch_size=5, accumulate=3))
    assert farthest(one, small) < 5e-6


def test_reported_loss_is_the_mean_over_the_ranks(one: Learnt, two: dict[str, Learnt]) -> None:
    assert two["plain"].loss == pytest.approx(one.loss, rel=1e-5)


@pytest.mark.parametrize(
    ("hook", "loss"),
    [
        ("wide, fp16", 0.01),
        ("wide, bf16", 0.05),
        ("wide, a rank a host, bf16", 0.05),
        ("wide, powersgd", 0.25),
    ],
)
def test_a_gradient_of_fewer_bytes_learns_nearly_the_same(
    hook: str, loss: float, two: dict[str, Learnt]
) -> None:
    assert two["wide"].loss < 2.0, "from ln(10) = 2.3, over an epoch"
    assert two[hook].loss == pytest.approx(two["wide"].loss, abs=loss)
    assert farthest(two["wide"], two[hook]) > 1e-6, "something else went over the wire"


def test_only_the_last_micro_batch_of_a_step_is_sent(
    ranks: tuple[dict[str, Learnt], list[int]], one: Learnt
) -> None:
    weights = sum(weight.numel() for weight in one.weights.values())
    assert ranks[1] == [weights] * 4, "one bucket, once a step of three micro-batches"


def test_hosts_that_do_not_divide_the_ranks_are_refused_before_anything_is_built() -> None:
    four = World(0, 4, 0, torch.device("cpu"))
    with pytest.raises(Stop, match="hierarchical=3 does not divide 4 ranks into hosts"):
        hooks.check(replace(SETTINGS, hierarchical=3), four)
    with pytest.raises(Stop, match="not with powersgd"):
        hooks.check(replace(SETTINGS, hierarchical=2, comm_hook="powersgd"), four)


def test_powersgd_is_refused_with_a_loss_scale_whose_overflow_it_would_keep() -> None:
    two = World(0, 2, 0, torch.device("cpu"))
    scaled = replace(SETTINGS, comm_hook="powersgd", precision="fp16")
    ddp = Mock()
    with pytest.raises(Stop, match=r"not go with the loss scale of precision=fp16: take"):
        hooks.install(ddp, scaled, two)
    hooks.install(ddp, replace(scaled, precision="bf16"), two)
    assert ddp.register_comm_hook.call_count == 1


def test_one_rank_sends_nothing_with_any_hook(tmp_path: Path) -> None:
    settings = replace(SETTINGS, hierarchical=2, comm_hook="bf16", max_steps=1)
    with one_rank() as world:
        learn(world, tmp_path, settings)


def test_two_hosts_of_two_ranks_take_the_mean_of_all_four() -> None:
    for rank, found in enumerate(on_ranks(4, mean_of)):
        for size, (plain, two_levels, rounded) in found.items():
            torch.testing.assert_close(
                two_levels, plain, rtol=1e-6, atol=1e-7, msg=f"{rank} {size}"
            )
            torch.testing.assert_close(rounded, plain, rtol=2e-2, atol=2e-2)


def mean_of(world: World) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
    """Of gradients that two ranks can and cannot halve."""
    found = {}
    exact, lower = (hooks.TwoLevels(2, world, dtype) for dtype in (None, torch.bfloat16))
    for size in (1, 7, 64):
        own = torch.randn(size, generator=torch.Generator().manual_seed(world.rank))
        means = [own.clone(), own.clone()]
        exact.reduce(None, Bucket(means[0])).wait()
        lower.reduce(None, Bucket(means[1])).wait()
        found[size] = (world.mean(own), means[0], means[1])
    return found


@dataclass
class Bucket:
    gradient: Tensor

    def buffer(self) -> Tensor:
        return self.gradient
