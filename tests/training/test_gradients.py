"""The gradients of a step are those of its mean loss, however its examples are dealt."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from training.data.loader import Step
from training.loop.forward_backward import passes
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.techniques.precision import Precision

CPU = torch.device("cpu")
INPUTS = torch.randn(11, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(11) % 3


class Shared:
    """One rank's part of a model; the gradients stay on their rank."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 3)
        self.unsent = 0

    def accumulating(self) -> AbstractContextManager[object]:
        self.unsent += 1
        return nullcontext()


def learn(dealt: list[list[list[int]]], smoothing: float = 0.0) -> tuple[Tensor, float, list[int]]:
    """The mean gradient of the ranks, their mean loss, and the examples of each."""
    examples = sum(len(batch) for rank in dealt for batch in rank)
    gradients, losses, samples = [], [], []
    for number, batches in enumerate(dealt):
        rank = Shared()
        step = Step(examples, ((INPUTS[batch], TARGETS[batch]) for batch in batches))
        settings = TrainSettings(accumulate=len(batches), label_smoothing=smoothing)
        world = World(number, len(dealt), 0, CPU)
        loss, count = passes(step, cast("Any", rank), Precision("fp32", CPU), world, settings)
        assert rank.unsent == len(batches) - 1
        assert rank.model.weight.grad is not None
        gradients.append(rank.model.weight.grad)
        losses.append(float(loss))
        samples.append(count)
    return torch.stack(gradients).mean(0), sum(losses) / len(losses), samples


@pytest.mark.parametrize(
    "dealt",
    [
        [[[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]],
        [[[0, 1, 2, 3, 4, 5, 6]], [[7, 8, 9, 10]]],
        [[[0, 1], [2], [3, 4, 5]], [[6], [7], [8, 9, 10]]],
    ],
    ids=["two micro-batches", "two ranks", "two ranks of three micro-batches"],
)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_shares_of_another_size_weigh_as_much_as_they_have_examples(
    dealt: list[list[list[int]]], smoothing: float
) -> None:
    whole_gradient, whole_loss, _ = learn([[list(range(11))]], smoothing)
    gradient, loss, samples = learn(dealt, smoothing)
    torch.testing.assert_close(gradient, whole_gradient, rtol=1e-5, atol=1e-7)
    assert loss == pytest.approx(whole_loss, rel=1e-6)
    assert samples == [sum(map(len, rank)) for rank in dealt]


def test_label_smoothing_divides_a_share_of_the_target_among_the_classes() -> None:
    _, plain, _ = learn([[list(range(11))]])
    _, smoothed, _ = learn([[list(range(11))]], 0.1)
    logits = torch.log_softmax(Shared().model(INPUTS), dim=-1)
    assert smoothed == pytest.approx(0.9 * plain + 0.1 * -logits.mean().item(), rel=1e-5)
