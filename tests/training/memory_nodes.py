"""Holders of checkpoints in processes of their own, as on several nodes, and ranks."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tests.training.ranks import FORKED
from tests.training.runs import few, own
from training import telemetry
from training.checkpoint.in_folder import FolderCheckpoints
from training.checkpoint.memory.checkpoints import MemoryCheckpoints
from training.checkpoint.memory.holder import Holder
from training.checkpoint.memory.shard import Buffer, Packed
from training.connection import Address, new_token
from training.loop import train as loop
from training.loop.settings import TrainSettings
from training.loop.train import Parallelizer
from training.loop.world import World
from training.parallel.replicated import replicated
from training.telemetry.worker import attempt_observer

SETTINGS = TrainSettings(
    model="mlp", width=8, dropout=0.1, epochs=3, max_steps=16, checkpoint_every_steps=100
)


@dataclass
class Nodes:
    """Holders by node; it is given to ranks as their `Holders`."""

    addresses: dict[str, Address] = field(default_factory=dict)

    def known(self) -> Sequence[Address]:
        return list(self.addresses.values())

    def of(self, node: str) -> Address:
        return self.addresses[node]

    def forget(self, lost: Sequence[Address]) -> None:
        """Each rank has a copy of this."""
        for address in lost:
            del self.addresses[address.node]


@dataclass
class Started:
    nodes: Nodes
    processes: dict[str, BaseProcess]
    commands: dict[str, Connection[Any, Any]]
    token: bytes

    def add(self, node: str) -> None:
        own, theirs = FORKED.Pipe()
        process = FORKED.Process(target=_hold, args=(node, self.token, theirs), daemon=True)
        process.start()
        theirs.close()
        self.nodes.addresses[node] = own.recv()
        self.processes[node], self.commands[node] = process, own

    def lose(self, *nodes: str) -> None:
        for node in nodes:
            self.processes[node].kill()
            self.processes[node].join()

    def flip(self, node: str, rank: int) -> None:
        """One bit of the node's copies of a rank."""
        self.commands[node].send(rank)
        assert self.commands[node].recv() > 0

    def memory(self, node: str) -> int:
        """Bytes of the node's holder."""
        self.commands[node].send(None)
        return int(self.commands[node].recv())


@contextmanager
def holding(*nodes: str) -> Iterator[Started]:
    started = Started(Nodes(), {}, {}, new_token())
    try:
        for node in nodes:
            started.add(node)
        yield started
    finally:
        for node, process in started.processes.items():
            started.commands[node].close()
            process.kill()
            process.join()


def _hold(node: str, token: bytes, commands: Connection[Any, Any]) -> None:
    holder = Holder(node, "127.0.0.1", token)
    commands.send(holder.address)
    while True:
        try:
            rank = commands.recv()
        except EOFError:
            return
        if rank is None:
            commands.send(holder._slots.size_bytes)
            continue
        slots = [
            slot for key, slots in holder._slots._of.items() if key[1] == rank for slot in slots
        ]
        for slot in slots:
            slot.memory[slot.capacity // 2] ^= 1
        commands.send(len(slots))


@dataclass(frozen=True)
class Kill:
    """SIGKILL to itself."""

    rank: int
    step: int
    copying: bool = False
    """During the copy of this step; else at its end."""


@dataclass
class Trained:
    losses: dict[int, float]
    """Of all ranks, by step."""
    weights: list[Tensor]
    resumed: str
    """From where, as rank 0 reports it; '' if it started at step 0."""
    stalls_s: list[float]
    printed: list[str]


def train(
    world: World,
    folder: Path,
    nodes: Nodes,
    places: Sequence[str],
    settings: TrainSettings = SETTINGS,
    kill: Kill | None = None,
    every_steps: int = 1,
    how: Parallelizer = replicated,
    attempt: int = 1,
) -> Trained:
    """Call it on every rank; `places`: the node of each."""
    done = Trained({}, [], "", [], [])
    models: list[torch.nn.Module] = []

    def spread(model: torch.nn.Module, world: World, given: TrainSettings) -> Any:
        models.append(model)
        return how(model, world, given)

    def step(*, loss: Tensor, step: int, checkpoint_s: float, **_: Any) -> None:
        if memory._writer is not None:
            memory._writer.connected.wait()
        done.losses[step] = float(world.mean(loss))
        done.stalls_s.append(checkpoint_s)
        if kill == Kill(world.rank, step):
            os.kill(os.getpid(), signal.SIGKILL)

    def notice(reason: str, message: str) -> None:
        done.printed.append(message)
        if reason == "Resumed":
            done.resumed = message

    copy = Buffer.copy

    def copies(buffer: Buffer, packed: Packed) -> None:
        if kill and kill.copying and kill.rank == world.rank and len(done.losses) == kill.step:
            half = len(packed.places) // 2
            part = replace(packed, places=packed.places[:half], sources=packed.sources[:half])
            copy(buffer, part)
            os.kill(os.getpid(), signal.SIGKILL)
        copy(buffer, packed)

    settings = replace(settings, workers=settings.workers or world.size)
    with (
        patch.object(telemetry, "step", step),
        patch.object(attempt_observer, "notice", notice),
        patch.object(attempt_observer, "attempt", lambda: attempt),
        patch.object(Buffer, "copy", copies),
        FolderCheckpoints(folder, world.rank, world.size) as stored,
    ):
        memory = MemoryCheckpoints(stored, nodes, places[world.rank], world, every_steps)
        loop.train(settings, world, memory, spread, few(), in_memory=memory)
        memory.close()
    done.weights = [own(item).detach().clone() for item in models[0].parameters()]
    return done
