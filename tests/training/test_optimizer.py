"""The optimiser, the moving average and clipping."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from training.loop.settings import TrainSettings
from training.loop.world import alone
from training.parallel.single_device import Whole
from training.techniques.average import Average
from training.techniques.optimizer import optimizer


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))


def stepped(settings: TrainSettings, steps: int = 5) -> list[Tensor]:
    trainer = model()
    optimize = optimizer(trainer.parameters(), settings)
    inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(steps):
        optimize.zero_grad()
        torch.autograd.backward(trainer(inputs).square().mean())
        optimize.step()
    return [parameter.detach() for parameter in trainer.parameters()]


def test_weight_decay_applies_to_matrices_and_not_to_biases() -> None:
    groups = optimizer(model().parameters(), TrainSettings(weight_decay=0.3)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.3, 0.0]
    assert [[item.ndim for item in group["params"]] for group in groups] == [[2, 2], [1] * 4]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_fused_is_the_same_step(name: str) -> None:
    plain, fused = (stepped(TrainSettings(optimizer=name, fused=fused)) for fused in (False, True))
    for one, other in zip(plain, fused, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_step_that_is_not_fused_still_takes_all_parameters_at_once(name: str) -> None:
    """If the device is a GPU; torch steps them in sequence with fused=False."""
    optimize = optimizer(model().parameters(), TrainSettings(optimizer=name))
    assert [group["fused"] for group in optimize.param_groups] == [None, None]


def test_a_frozen_parameter_is_left_out() -> None:
    trainer = model()
    trainer[0].requires_grad_(False)
    groups = optimizer(trainer.parameters(), TrainSettings()).param_groups
    assert [len(group["params"]) for group in groups] == [1, 3]


def test_the_average_is_of_the_weights_and_warms_up() -> None:
    """Decays 2/11, 3/12, then 0.3 where the warm-up would allow 4/13."""
    trainer = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        trainer.weight.fill_(0.0)
        average = Average(trainer, 0.3)
        expected = 0.0
        for step, decay in enumerate([2 / 11, 3 / 12, 0.3, 0.3], start=1):
            trainer.weight.fill_(float(step))
            average.update()
            expected = decay * expected + (1 - decay) * step
    with average.used():
        assert trainer.weight.item() == pytest.approx(expected, rel=1e-6)
    assert trainer.weight.item() == 4.0, "the newest weights are back"


def test_the_average_continues_from_what_was_saved() -> None:
    trainer = model()
    average = Average(trainer, 0.9)
    for parameter in trainer.parameters():
        parameter.data.add_(1.0)
    average.update()
    saved = copy.deepcopy(average.state())
    other = Average(model(), 0.9)
    other.load(saved)
    assert other.state()["steps"] == 1
    for one, two in zip(saved["average"], other.state()["average"], strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_no_average_takes_no_memory() -> None:
    average = Average(model(), 0.0)
    average.update()
    assert average.state() == {}


@pytest.mark.parametrize(("longest", "after"), [(0.0, 5.0), (10.0, 5.0), (1.0, 1.0)])
def test_a_gradient_is_cut_to_the_longest_and_its_whole_length_reported(
    longest: float, after: float
) -> None:
    trainer = nn.Linear(2, 1, bias=False)
    whole = Whole(trainer, alone("false"))
    trainer.weight.grad = torch.tensor([[3.0, 4.0]])
    assert float(whole.clip(longest)) == pytest.approx(5.0)
    assert float(trainer.weight.grad.norm()) == pytest.approx(after, rel=1e-5)
