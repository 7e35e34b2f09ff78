"""The training loop of one rank, the same for every job.

The settings, the world, the checkpoints, and the distribution of the model over the ranks come from
the job. The data set is the one in the settings, unless the job passes another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from training import telemetry
from training.data import load
from training.data.examples import Data, Examples
from training.data.loader import Batches, Loader
from training.data.sampler import Sampler
from training.loop import evaluate, recipe
from training.loop.checkpoints import Checkpoints, StepCheckpoints
from training.loop.divergence import Finite, why_not_finite
from training.loop.flops import flops
from training.loop.generators import seed_all
from training.loop.progress import Progress
from training.loop.save_interval import SaveInterval
from training.loop.settings import TrainSettings
from training.loop.step import Due, Pace, after_step, update
from training.loop.tracking import Tracking
from training.loop.world import World
from training.models import build
from training.parallel import Parallel
from training.techniques import attention, blocks, compiled, hooks, limits, memory
from training.techniques.average import Average
from training.techniques.precision import Precision
from training.techniques.schedule import schedule

Parallelizer = Callable[[nn.Module, World, TrainSettings], Parallel]
Feed = Callable[[Examples, Sampler, TrainSettings], Batches]


@memory.explained
def train(
    settings: TrainSettings,
    world: World,
    checkpoints: Checkpoints,
    spread: Parallelizer,
    data: Data | None = None,
    feed: Feed = Loader,
    in_memory: StepCheckpoints | None = None,
) -> dict[str, Any]:
    """Returns the last step and the model's evaluation after it, or why training stopped."""
    data = data or world.together(lambda: load(settings))
    world.together(lambda: limits.check(settings, world))
    memory.limit(settings, world.device)

    parallel = spread(build_model(settings, data), world, settings)
    if world.rank == 0:
        for idle in limits.without_effect(settings, world, uses_ddp=parallel.uses_ddp):
            print(idle, flush=True)
    groups = parallel.example_groups
    for evaluated in (data.held_out, data.test):
        if evaluated is not None:
            evaluate.check_shares(evaluated, groups)
    stages = world.size // groups.size
    dealt = sampler(settings, groups, len(data.train), stages, data.chunks)
    batches = feed(data.train, dealt, settings)

    optimizer = parallel.optimizer(settings)
    step_examples = settings.batch_size * settings.accumulate * (settings.workers // stages)
    rates = schedule(settings, batches.steps, settings.epochs, step_examples)
    precision = Precision(
        settings.precision,
        world.device,
        casts_itself=parallel.casts_itself,
        in_parts=parallel.in_parts,
    )
    average = Average(parallel.model, settings.ema_decay)
    finite = Finite(world.device, skips_steps=precision.skips_steps)
    progress = Progress(
        parallel,
        optimizer,
        precision,
        average,
        model=settings.model,
        steps=batches.steps,
        made=recipe.saved(settings, data),
        epoch_loss=torch.zeros((), dtype=torch.float64, device=world.device),
    )
    seed_all(settings.seed, world.rank)  # other noise on every rank

    with checkpoints.newest() as directory:
        if directory is not None:
            inexact = world.together(lambda: progress.load(directory, world.rank, world.size))
            telemetry.resume(step=progress.step)
            if parallel.uses_ddp:
                inexact = inexact or hooks.not_exact(settings, world)
            if world.rank == 0:
                print(f"resumed at step {progress.step}, {inexact or 'exactly'}", flush=True)

    interval = SaveInterval(progress, world)
    metrics: dict[str, float] = {}

    def checkpoint(due: Due) -> float:
        """Evaluate and report, and save if it is due.

        Returns how long saving blocked training, in seconds.
        """
        began_s = time.monotonic()
        metrics.update(
            evaluate.metrics(settings, data, groups, progress, with_test=due.training_ends)
        )
        tracking.report(metrics, progress.step)
        progress.tracked = tracking.id
        if progress.batch == batches.steps:
            progress.end_epoch()
        if not due.saves:
            checkpoints.evaluated(metrics)
            return 0.0
        interval.count_time()
        began = time.perf_counter()
        checkpoints.report(metrics, progress.step, progress.states(world.rank, world.size))
        blocked_s = time.perf_counter() - began
        if settings.checkpoint_every == "auto":
            interval.plan(time.monotonic() - began_s)
        return blocked_s

    def not_finite(newest: bool) -> str:
        wrong = finite.first_wrong(newest=newest)
        return "" if wrong is None else why_not_finite(wrong[0], world.gather(wrong[1]))

    checkpoint_s = 0.0
    pace = Pace(settings.min_step_s)
    tracking = Tracking(settings, world, progress.tracked)
    with tracking, attention.kernel(settings.attention):
        # A run that had completed all of its steps has none left.
        while progress.epoch < settings.epochs and not 0 < settings.max_steps <= progress.step:
            for step in batches.epoch(progress.epoch, after=progress.batch):
                loss, samples = parallel.passes(step, precision, settings)

                number = progress.step + 1
                due = after_step(settings, progress)
                if settings.checkpoint_every == "auto" and interval.is_due(number):
                    due = replace(due, saves=True)

                with telemetry.section("optimizer"):
                    precision.unscale(optimizer)
                    grad_norm = parallel.clip(settings.clip_norm)
                    if settings.stop_on_nan:
                        finite.step(number, loss, grad_norm)
                    if why := not_finite(newest=due.evaluates):
                        telemetry.step(loss=loss, grad_norm=grad_norm)
                        tracking.stopped(why)
                        return {"stopped": why}
                    if in_memory is not None:
                        checkpoint_s += in_memory.before_update(number)
                    learning_rate = update(progress, rates)

                pace.wait()
                progress.end_step(loss)
                telemetry.step(
                    loss=loss,
                    samples=samples,
                    tokens=samples * data.shape[0] if data.is_tokens else None,
                    epoch=progress.epochs,
                    learning_rate=learning_rate,
                    grad_norm=grad_norm,
                    step=progress.step,
                    checkpoint_s=checkpoint_s,
                )
                checkpoint_s = checkpoint(due) if due.evaluates else 0.0
                if in_memory is not None:
                    checkpoint_s += in_memory.after_step(progress)
                if number == settings.max_steps:
                    return {"step": progress.step, **metrics}
    return {"step": progress.step, **metrics}


def build_model(settings: TrainSettings, data: Data) -> nn.Module:
    """Build the same model on every rank, with the selected techniques; reports its FLOPs."""
    torch.manual_seed(settings.seed)
    model = build(settings, data.shape, data.classes)
    telemetry.model(flops_per_sample=flops(model, data.held_out.batch(np.arange(1), None)))
    if settings.channels_last:
        model.to(memory_format=torch.channels_last)
    if settings.activation_checkpointing:
        blocks.compute_again(model)
    if settings.compile:
        compiled.compile(model)
    return model


def sampler(
    settings: TrainSettings,
    world: World,
    examples: int,
    stages: int = 1,
    chunks: tuple[int, ...] = (),
) -> Sampler:
    """`world`: the number of groups that train on separate examples, each of `stages` workers."""
    return Sampler(
        examples=examples,
        batch_size=settings.batch_size,
        rank=world.rank,
        world_size=world.size,
        seed=settings.seed,
        workers=settings.workers // stages,
        accumulate=settings.accumulate,
        chunks=chunks,
    )
