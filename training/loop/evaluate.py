"""Evaluate a model on held-out examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from training.data.examples import Data, Examples
from training.data.loader import Loader
from training.data.sampler import Sampler
from training.data.settings import DataSettings
from training.loop.progress import Progress
from training.loop.world import World
from training.stop import Stop
from training.techniques.precision import Precision


@dataclass(frozen=True)
class Score:
    loss: float
    """Cross entropy, the mean over the targets, in nats."""
    accuracy: float
    """The share of correct answers."""


def summary(metrics: Mapping[str, Any]) -> str:
    """The result of a finished run, in one line."""
    test = f"test accuracy {metrics['test_accuracy']:.4f}, " if "test_accuracy" in metrics else ""
    return f"{test}accuracy {metrics['accuracy']:.4f} after {metrics['step']:.0f} steps"


def check_shares(held_out: Examples, world: World) -> None:
    """Raises Stop if a rank would have no examples, before training starts."""
    if len(held_out) < world.size:
        raise Stop(
            f"{len(held_out)} examples to evaluate on do not go round {world.size} ranks: "
            "take more examples, or fewer workers"
        )


@torch.no_grad()
def evaluate(
    model: nn.Module, held_out: Examples, world: World, precision: Precision, settings: DataSettings
) -> Score:
    """Every rank evaluates its share. Uses no random generator."""
    share = Sampler(
        len(held_out), settings.batch_size, world.rank, world.size, seed=0, shuffle=False
    )
    # Loader processes that wait from one evaluation to the next would use memory.
    loading = replace(settings, persistent_workers=False)
    batches = Loader(held_out, share, loading, augmented=False)
    sums = torch.zeros(3, dtype=torch.float64, device=world.device)
    answered = 0
    model.eval()
    for step in batches.epoch(0):
        for inputs, targets in step.micro_batches:
            wanted = targets.to(world.device).flatten()
            answered += len(wanted)
            with precision.autocast():
                answers = model(inputs.to(world.device)).flatten(0, -2)
            loss = nn.functional.cross_entropy(answers.float(), wanted, reduction="sum")
            right = (answers.argmax(dim=-1) == wanted).sum()
            sums[:2] += torch.stack([loss.double(), right.double()])
    model.train()
    sums[2] = answered
    loss_sum, right_sum, answers_sum = world.total(sums).tolist()
    return Score(loss_sum / answers_sum, right_sum / answers_sum)


def metrics(
    settings: DataSettings, data: Data, world: World, progress: Progress, *, with_test: bool
) -> dict[str, float]:
    """The evaluation of the averaged weights after the last step of `progress`.

    `with_test`: on the test data too, if there are any.
    """
    model, precision = progress.parallel.model, progress.precision
    found: dict[str, float] = {}
    with progress.average.used():
        score = evaluate(model, data.held_out, world, precision, settings)
        if with_test and data.test is not None:
            test = evaluate(model, data.test, world, precision, settings)
            found |= {"test_accuracy": test.accuracy, "test_loss": test.loss}
    return found | {
        "accuracy": score.accuracy,
        "held_out_loss": score.loss,
        "loss": float(world.mean(progress.mean_loss)),
        "epoch": progress.epochs,
        "step": float(progress.step),
    }
