"""The learning rate of each step: a function of the step's number, without state."""

from __future__ import annotations

import math
from dataclasses import dataclass

from training.techniques.settings import OptimizerSettings


@dataclass(frozen=True, slots=True)
class Schedule:
    peak: float
    kind: str
    warmup_steps: int
    decay_every_steps: int
    gamma: float
    steps: int
    """The steps of the whole run."""

    def rate(self, step: int) -> float:
        """The learning rate of the next step after `step` steps."""
        return self.peak * self.factor(step)

    def factor(self, step: int) -> float:
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        if self.kind == "constant":
            return 1.0
        if self.kind == "step":
            return self.gamma ** (step // self.decay_every_steps)
        done = min(1.0, (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps))
        return 0.5 * (1 + math.cos(math.pi * done))


def schedule(
    settings: OptimizerSettings, steps_of_epoch: int, epochs: int, step_examples: int
) -> Schedule:
    """`step_examples`: the examples of a step, over all ranks and micro-batches."""
    warmup = settings.warmup_steps
    return Schedule(
        peak=settings.learning_rate * scale(settings, step_examples),
        kind=settings.schedule,
        warmup_steps=steps_of_epoch if warmup < 0 else warmup,
        decay_every_steps=settings.decay_every_epochs * steps_of_epoch,
        gamma=settings.lr_gamma,
        steps=epochs * steps_of_epoch,
    )


def scale(settings: OptimizerSettings, step_examples: int) -> float:
    """Linear for SGD (Goyal and others: Accurate, Large Minibatch SGD, 2017), by the square root
    for Adam (Malladi and others: On the SDEs and Scaling Rules for Adaptive Gradient Algorithms,
    2022).
    """
    larger = step_examples / settings.base_batch
    return {"none": 1.0, "linear": larger, "sqrt": math.sqrt(larger)}[settings.scale_learning_rate]
