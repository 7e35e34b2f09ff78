"""One step's forward and backward passes."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from training import telemetry
from training.data.loader import Step
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.parallel import Parallel
from training.techniques.precision import Precision


def passes(
    step: Step, parallel: Parallel, precision: Precision, world: World, settings: TrainSettings
) -> tuple[Tensor, int]:
    """Compute the gradients of the step's mean loss; returns this rank's loss and its examples.

    The mean is over all of the step's examples: the shares of ranks and micro-batches, which may
    differ by one example, are weighted by their number.
    """
    step_loss, samples = torch.zeros((), device=world.device), 0
    for number in range(settings.accumulate):
        with telemetry.section("data"):
            inputs, targets = (
                item.to(world.device, non_blocking=True) for item in next(step.micro_batches)
            )
            if settings.channels_last and inputs.ndim == 4:
                inputs = inputs.contiguous(memory_format=torch.channels_last)
        last = number + 1 == settings.accumulate
        with nullcontext() if last else parallel.accumulating():
            with telemetry.section("forward"), precision.autocast():
                answers = parallel.model(inputs)
                loss = nn.functional.cross_entropy(
                    answers.flatten(0, -2),
                    targets.flatten(),
                    label_smoothing=settings.label_smoothing,
                )
                # The ranks' gradients are averaged.
                weighed = loss * (len(inputs) * world.size / step.examples)
            with telemetry.section("backward"):  # and the all-reduce, which runs within it
                precision.backward(weighed)
        step_loss += weighed.detach()
        samples += len(inputs)
    return step_loss, samples
