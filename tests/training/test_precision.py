"""Numbers of fewer bits: what is computed in them, and that it learns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from training.checkpoint.in_folder import FolderCheckpoints
from training.loop.settings import TrainSettings
from training.loop.train import train
from training.loop.world import alone
from training.parallel.single_device import whole
from training.techniques.optimizer import optimizer
from training.techniques.precision import Precision

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    Precision("fp32", CPU)


def test_tf32_is_of_matrices_and_of_convolutions_and_nothing_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, found in (("tf32", "tf32"), ("fp32", "ieee"), ("bf16", "ieee")):
            Precision(name, CPU)
            assert torch.backends.cuda.matmul.fp32_precision == found
            assert torch.backends.cudnn.allow_tf32 == (name == "tf32")


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("fp32", torch.float32),
        ("tf32", torch.float32),
        ("bf16", torch.bfloat16),
        ("fp16", torch.float16),
    ],
)
def test_products_have_reduced_precision_and_weights_stay_fp32(
    name: str, answers: torch.dtype
) -> None:
    precision, model = Precision(name, CPU), nn.Linear(4, 3)
    with precision.autocast():
        found = model(torch.ones(2, 4))
    assert found.dtype == answers
    precision.backward(found.float().sum())
    assert model.weight.grad is not None
    assert {model.weight.dtype, model.weight.grad.dtype} == {torch.float32}


def test_a_wrapper_that_casts_is_left_to_it() -> None:
    with Precision("bf16", CPU, casts_itself=True).autocast():
        assert nn.Linear(4, 3)(torch.ones(2, 4)).dtype == torch.float32


def test_a_gradient_that_overflows_leaves_the_step_out_and_lowers_the_scale() -> None:
    precision, model = Precision("fp16", CPU), nn.Linear(4, 3)
    optimize = optimizer(model.parameters(), TrainSettings(optimizer="sgd"))
    before = model.weight.detach().clone()
    for large, moves in ((1e34, False), (1.0, True)):  # 1e34 · 2^16 is more than fp32 has
        optimize.zero_grad()
        precision.backward(model(torch.ones(2, 4)).sum() * large)
        precision.unscale(optimize)
        precision.step(optimize)
        assert torch.equal(model.weight, before) is not moves
    assert precision.scaler.get_scale() == 2.0**15
    assert precision.skips_steps


def test_small_gradients_come_through_the_scale_as_they_are() -> None:
    precision, model = Precision("fp16", CPU), nn.Linear(4, 3)
    precision.backward(model(torch.ones(2, 4)).sum() * 1e-8)
    precision.unscale(optimizer(model.parameters(), TrainSettings()))
    assert model.weight.grad is not None
    torch.testing.assert_close(model.weight.grad, torch.full((3, 4), 2e-8))


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_nine_of_ten_held_out_digits_are_right_after_three_epochs(
    precision: str, tmp_path: Path
) -> None:
    settings = TrainSettings(
        workers=1, batch_size=16, width=16, epochs=3, precision=precision, learning_rate=1e-2
    )
    world = alone("false")
    with FolderCheckpoints(tmp_path, 0, 1) as checkpoints:
        assert train(settings, world, checkpoints, whole)["accuracy"] >= 0.9
