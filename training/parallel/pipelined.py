"""Each rank has some of the model's blocks, and micro-batches pass from rank to rank.

The schedules are torch.distributed.pipelining's. GPipe (Huang and others, 2019) does all forward
passes of a step and then all backward ones. 1F1B (Narayanan and others: PipeDream, 2019) alternates
them, and keeps the activations of as many micro-batches as there are stages, not of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import PipelineScheduleSingle
from torch.distributed.pipelining.stage import PipelineStageInfo
from torch.optim import Optimizer

from training import telemetry
from training.data.loader import Step
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.parallel import gradient_norm
from training.parallel.named_state import named
from training.parallel.settings import PipelineSettings
from training.parallel.single_device import Whole
from training.parallel.stage import Stage
from training.stop import Stop
from training.techniques.average import Average
from training.techniques.precision import Precision

SCHEDULES: dict[str, type[PipelineScheduleSingle]] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
LEFT_OUT = -100
"""A target that `cross_entropy` ignores."""


class Pipelined(Whole):
    in_parts = True
    saves_alone = False

    def __init__(
        self, model: nn.Module, world: World, settings: TrainSettings, pipeline: PipelineSettings
    ) -> None:
        if pipeline.pipeline == "1f1b" and settings.accumulate < world.size:
            raise Stop(
                f"{settings.accumulate} micro-batches do not fill {world.size} stages by 1f1b: "
                f"take --accumulate {world.size} or more, or --pipeline gpipe"
            )
        self._named = named(model)
        self._stage = Stage(model, world.rank, world.size).to(world.device)
        if settings.compile:
            self._stage.compile()
        self.model: nn.Module = _Row(self._stage, world)
        self._whole, self._world = model, world
        self._schedule_of = SCHEDULES[pipeline.pipeline]
        self._schedule: PipelineScheduleSingle | None = None
        self._scale = 0.0
        own = sum(item.nbytes for item in self._stage.parameters())
        print(
            f"stage {world.rank + 1} of {world.size} has {len(self._stage.own)} blocks, "
            f"{own:,} bytes of weights",
            flush=True,
        )
        self._groups = [
            (item.weight, item.stages, _group(item.stages)) for item in self._stage.shared
        ]

    @property
    def example_groups(self) -> World:
        """Every stage gets the same examples, so all stages count as one."""
        return World(0, 1, self._world.local_rank, self._world.device)

    def passes(
        self, step: Step, precision: Precision, settings: TrainSettings
    ) -> tuple[Tensor, float]:
        """Run the step's micro-batches through the pipeline. Each stage reports its share of the
        examples, so that all of them together count each once.

        The time of the section "backward" includes the time that a stage waits for the others.
        """
        # If the sampler's micro-batches have 1 example, some have 2.
        world, size = self._world, max(2, settings.batch_size)
        with telemetry.section("data"):
            batches = [next(step.micro_batches) for _ in range(settings.accumulate)]
            inputs = [_filled(item, size, None).to(world.device) for item, _ in batches]
            targets = [_filled(item, size, LEFT_OUT).to(world.device) for _, item in batches]
            if settings.channels_last and inputs[0].ndim == 4:
                inputs = [item.contiguous(memory_format=torch.channels_last) for item in inputs]
        self._scale = 1 / (step.examples * targets[0][0].numel())
        schedule = self._schedule or self._planned(precision, settings)
        # On every stage: a scaler is initialised by the first number that it scales.
        scale = precision.scaler.scale(torch.ones((), device=world.device))
        losses: list[Tensor] = []
        with telemetry.section("backward"):
            schedule.step(
                arg_mbs=[(item,) if self._stage.is_first else () for item in inputs],
                target_mbs=targets,
                losses=losses,
                return_outputs=False,
            )
            for weight, stages, group in self._groups:
                if world.rank in stages:
                    assert weight.grad is not None
                    dist.all_reduce(weight.grad, group=group)
        loss = torch.zeros((), device=world.device)
        if self._stage.is_last:
            loss = torch.stack(losses).sum().detach() / scale
        dist.broadcast(loss, src=world.size - 1)
        return loss, step.examples / world.size

    def _planned(self, precision: Precision, settings: TrainSettings) -> PipelineScheduleSingle:
        def loss(answers: Tensor, targets: Tensor) -> Tensor:
            with precision.autocast():
                summed = nn.functional.cross_entropy(
                    answers.flatten(0, -2),
                    targets.flatten(),
                    ignore_index=LEFT_OUT,
                    label_smoothing=settings.label_smoothing,
                    reduction="sum",
                )
            scaled: Tensor = precision.scaler.scale(summed * self._scale)
            return scaled

        @contextmanager
        def within(_: PipelineStageInfo) -> Iterator[None]:
            with telemetry.section("forward"), precision.autocast():
                yield

        world = self._world
        stage = PipelineStage(self._stage, world.rank, world.size, world.device)
        stage.register_forward_context(within)
        planned = self._schedule_of(stage, settings.accumulate, loss_fn=loss, scale_grads=False)
        self._schedule = planned
        return planned

    def clip(self, longest: float) -> Tensor:
        elsewhere = {id(weight) for weight, at, _ in self._groups if self._world.rank != at[0]}
        learnt = [item for item in self.model.parameters() if item.grad is not None]
        own: list[Tensor] = []
        others: list[Tensor] = []
        for item in learnt:
            assert item.grad is not None
            (others if id(item) in elsewhere else own).append(item.grad)
        return gradient_norm.clip(own, longest, self._world.device, counted_elsewhere=others)

    def states(self, optimizer: Optimizer, average: Average) -> dict[str, Any]:
        return self._named.states(self._whole, optimizer, average)

    def load(self, directory: Path, optimizer: Optimizer, average: Average) -> None:
        self._named.load(directory, self._whole, optimizer, average)


class _Row(nn.Module):
    """All stages, one after the other, to use the model outside of training."""

    def __init__(self, stage: Stage, world: World) -> None:
        super().__init__()
        self.stage, self._world = stage, world

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """The answers, on every rank; all must pass the same inputs."""
        own, last = self._world.rank, self._world.size - 1
        states = self.stage(inputs) if own == 0 else inputs
        for source in range(last):
            states = self._like(states, source)
            if own == source:
                dist.send(states, source + 1)
            if own == source + 1:
                dist.recv(states, source)
                states = self.stage(states).contiguous()
        states = self._like(states, last)
        dist.broadcast(states, src=last)
        return states

    def _like(self, states: Tensor, source: int) -> Tensor:
        """On the source its states, elsewhere empty tensors for them."""
        described = [(states.shape, states.dtype)]
        dist.broadcast_object_list(described, src=source, device=self._world.device)
        if self._world.rank == source:
            return states.contiguous()
        shape, dtype = described[0]
        return torch.empty(shape, dtype=dtype, device=self._world.device)


def _group(ranks: tuple[int, ...]) -> dist.ProcessGroup:
    """Call on all ranks of the world."""
    made: dist.ProcessGroup = dist.new_group(list(ranks))  # type: ignore[assignment]
    return made


def _filled(batch: Tensor, size: int, value: int | None) -> Tensor:
    """Pad to the number of examples that the pipeline expects, with the first one or a value."""
    lacking = size - len(batch)
    if not lacking:
        return batch
    rest = batch[:1].expand(lacking, *batch.shape[1:])
    return torch.cat([batch, rest if value is None else torch.full_like(rest, value)])
