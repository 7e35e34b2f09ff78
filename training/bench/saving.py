"""The cost of saving for training, and the duration of a restore, by method."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]
from torch import Tensor
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from training.bench import units
from training.bench.loop import Loop, same_step
from training.bench.repeated import Quartiles, spread
from training.bench.section import Finding, Level, Section, Table
from training.bench.settings import BenchSettings
from training.checkpoint.filesystem import is_address, located, size_bytes
from training.checkpoint.in_folder import FolderCheckpoints
from training.checkpoint.storage import RunDirectory
from training.data import load
from training.loop.world import World
from training.models import build
from training.parallel.replicated import replicated

STALL = 0.02
"""The share of training time that a checkpoint in the background may block."""
BACKGROUND = "in the background"


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    stall_s: Quartiles
    """Until training continues."""
    written_s: Quartiles
    """Until everything is written, while training is paused."""
    restore_s: Quartiles
    size_bytes: int
    """The size of the files of all ranks."""
    epoch_with_s: Quartiles
    """An epoch's steps that start as soon as possible, including the stall before them."""


@dataclass(frozen=True, slots=True)
class Saving:
    model: str
    ranks: int
    state_bytes: int
    steps: int
    """The number of steps in an epoch."""
    epoch_s: Quartiles
    """The time of its steps, without a checkpoint."""
    methods: tuple[Method, ...]

    def stall_share(self, method: Method) -> float:
        """As a share of the time of an epoch with a checkpoint."""
        return method.stall_s.median / (method.stall_s.median + self.epoch_s.median)


class Save(ABC):
    """One way of saving. All ranks call the same."""

    name: str

    def __init__(self, world: World, states: dict[str, Any]) -> None:
        self._world, self._states = world, states

    @abstractmethod
    def begin(self, place: RunDirectory) -> Callable[[], object]:
        """Returns when training may continue; the returned function waits until everything is
        written.
        """

    @abstractmethod
    def restore(self, place: RunDirectory) -> None:
        """Restore into the states."""


class InFolder(Save):
    """Save as the jobs do: rank 0 writes the whole state, with torch.save, and its digests."""

    def __init__(self, world: World, states: dict[str, Any], *, in_background: bool) -> None:
        super().__init__(world, states)
        self.name = f"torch.save, {BACKGROUND if in_background else 'waited for'}"
        self._in_background = in_background

    def begin(self, place: RunDirectory) -> Callable[[], object]:
        checkpoints = FolderCheckpoints(
            place, self._world.rank, self._world.size, in_background=self._in_background
        )
        states = self._states if self._world.rank == 0 else {}
        checkpoints.report({}, 0, {f"{name}.pt": state for name, state in states.items()})
        return lambda: checkpoints.__exit__(None, None, None)

    def restore(self, place: RunDirectory) -> None:
        checkpoints = FolderCheckpoints(place, self._world.rank, self._world.size)
        with checkpoints, checkpoints.newest() as directory:
            assert directory is not None
            for name in self._states:
                torch.load(directory / f"{name}.pt", map_location="cpu", weights_only=True)


class Distributed(Save):
    """torch.distributed.checkpoint: each rank writes its state, or its part of the shared state."""

    def __init__(
        self, world: World, states: dict[str, Any], *, sharded: bool, in_background: bool = False
    ) -> None:
        super().__init__(world, sharded_over(world, states) if sharded else states)
        how = BACKGROUND if in_background else "waited for"
        self.name = f"DCP {'sharded' if sharded else 'full'}, {how}"
        self._in_background = in_background
        # Its collectives run beside those of the steps, and the two must not mix.
        self._group: Any = dist.new_group(backend="gloo") if in_background else None

    def begin(self, place: RunDirectory) -> Callable[[], object]:
        if not self._in_background:
            dcp_save(self._states, checkpoint_id=place.path)
            return lambda: None
        saved = async_save(self._states, checkpoint_id=place.path, process_group=self._group)
        assert isinstance(saved, Future)
        return saved.result

    def restore(self, place: RunDirectory) -> None:
        dcp_load(self._states, checkpoint_id=place.path)


def sharded_over(world: World, states: dict[str, Any]) -> dict[str, Any]:
    """Every tensor, except for single numbers, cut along its first dimension: a piece per rank."""
    mesh = init_device_mesh(world.device.type, (world.size,))

    def cut(state: Any) -> Any:
        if isinstance(state, Tensor):
            return distribute_tensor(state.detach(), mesh, [Shard(0)]) if state.ndim else state
        if isinstance(state, dict):
            return {key: cut(value) for key, value in state.items()}
        return [cut(item) for item in state] if isinstance(state, list) else state

    return {name: cut(state) for name, state in states.items()}


def measure(world: World, settings: BenchSettings, folder: Path) -> Saving:
    """Call on all ranks; `folder` is one that all of them see, and is left unchanged.

    With a bucket as storage path, the jobs' own checkpoints are measured there.
    """
    data = load(settings)
    states = trained_states(settings, world)
    ways: list[Save] = [
        InFolder(world, states, in_background=False),
        InFolder(world, states, in_background=True),
    ]
    name, filesystem, root = "", LocalFileSystem(), str(folder)
    if is_address(settings.storage_path):
        name = world.gather_all(f"{uuid.uuid4().hex}-")[0]
        filesystem, root = located(settings.storage_path)
    else:  # torch.distributed.checkpoint writes files
        ways += [
            Distributed(world, states, sharded=False),
            Distributed(world, states, sharded=True),
            Distributed(world, states, sharded=True, in_background=True),
        ]
    examples = settings.batch_size * settings.accumulate * world.size
    epoch_steps = settings.turn_steps if settings.quick else -(-len(data.train) // examples)
    epochs: list[float] = []
    stalls: dict[str, list[float]] = {way.name: [] for way in ways}
    epochs_with: dict[str, list[float]] = {way.name: [] for way in ways}
    restored: dict[str, list[float]] = {way.name: [] for way in ways}
    written: dict[str, list[float]] = {way.name: [] for way in ways}
    sizes: dict[str, int] = {}
    with Loop(settings, world, replicated, data, same_step(settings, world, data)) as loop:
        loop.turn(settings.turn_steps)
        rounds = min(settings.rounds, 5)
        for turn in range(rounds + 1):
            world.wait()
            epochs.append(loop.turn(epoch_steps))
            for way in ways:
                path = f"{root}/{name}saving-{turn}-{ways.index(way)}"
                place = RunDirectory(filesystem, path)
                world.wait()
                began = time.perf_counter()
                finish = way.begin(place)
                stalls[way.name].append(time.perf_counter() - began)
                loop.turn(epoch_steps)
                epochs_with[way.name].append(time.perf_counter() - began)
                finish()
                world.wait()
                began = time.perf_counter()
                way.restore(place)
                world.wait()
                restored[way.name].append(time.perf_counter() - began)
                sizes[way.name] = size_bytes(filesystem, path)
                world.wait()
                began = time.perf_counter()
                way.begin(RunDirectory(filesystem, f"{path}/again"))()
                world.wait()
                written[way.name].append(time.perf_counter() - began)
                if world.rank == 0:
                    place.delete(path)
    return Saving(
        settings.model,
        world.size,
        sum(map(bytes_of, states.values())),
        epoch_steps,
        spread(epochs[1:]),
        tuple(
            Method(
                way.name,
                spread(stalls[way.name][1:]),
                spread(written[way.name][1:]),
                spread(restored[way.name][1:]),
                sizes[way.name],
                spread(epochs_with[way.name][1:]),
            )
            for way in ways
        ),
    )


def trained_states(settings: BenchSettings, world: World) -> dict[str, Any]:
    """The weights of the model and two numbers for each of them, as Adam has."""
    data = load(settings)
    weights = build(settings, data.shape, data.classes).to(world.device).state_dict()
    adam = {
        key: {name: torch.rand_like(value, dtype=torch.float32) for name, value in weights.items()}
        for key in ("exp_avg", "exp_avg_sq")
    }
    return {"model": dict(weights), "optimizer": adam}


def bytes_of(state: Any) -> int:
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    return sum(map(bytes_of, state.values())) if isinstance(state, dict) else 0


def section(result: Saving) -> Section:
    rows = tuple(
        (
            method.name,
            method.stall_s.text(units.seconds),
            units.share(result.stall_share(method)),
            units.ratio(method.epoch_with_s.median / result.epoch_s.median),
            method.written_s.text(units.seconds),
            method.restore_s.text(units.seconds),
            units.size(method.size_bytes),
        )
        for method in result.methods
    )
    columns = (
        "method", "stall", "of an epoch", "epoch with ÷ without", "until written", "restore",
        "files",
    )  # fmt: skip
    return Section(
        "Checkpoints",
        f"{result.model}'s weights and Adam's numbers, {units.size(result.state_bytes)} on "
        f"{result.ranks} ranks; an epoch is {result.steps} steps "
        f"({result.epoch_s.text(units.seconds)}), which begin as soon as the checkpoint lets "
        "them; alternating, medians (quartiles). torch.save comes with SHA-256 sums, and its "
        "restore checks them. Files are as warm as the system keeps them.",
        (Table(columns, rows),),
        (),
        findings(result),
    )


def findings(result: Saving) -> tuple[Finding, ...]:
    found = []
    for method in result.methods:
        if method.name != f"torch.save, {BACKGROUND}":
            continue
        share = result.stall_share(method)
        text = f"A checkpoint in the background each epoch stalls {units.share(share)} of the time"
        advice = "Save less often (checkpoint_every_steps), or sharded: each rank copies its part."
        good = share <= STALL
        found.append(
            Finding(Level.GOOD, f"{text}.")
            if good
            else Finding(Level.PROBLEM, f"{text}, {units.share(STALL)} at most.", advice)
        )
    least = min(result.methods, key=lambda method: method.stall_s.median)
    fast = min(result.methods, key=lambda method: method.restore_s.median)
    found.append(
        Finding(
            Level.NOTE,
            f"{least.name} stalls least ({units.seconds(least.stall_s.median)}); {fast.name} "
            f"restores fastest ({units.seconds(fast.restore_s.median)}).",
        )
    )
    return tuple(found)
