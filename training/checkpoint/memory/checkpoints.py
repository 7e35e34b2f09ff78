"""The checkpoints of one rank, in memory and on the storage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from training.checkpoint.manifest import decode, name
from training.checkpoint.memory import need, restored, sets
from training.checkpoint.memory.buffers import BufferCopies
from training.checkpoint.memory.need import Room
from training.checkpoint.memory.restored import Unusable
from training.checkpoint.memory.sets import WholeSet
from training.checkpoint.memory.shard import Packed, pack
from training.checkpoint.memory.writer import Nodes, Writer
from training.connection import Address
from training.loop import generators
from training.loop.checkpoints import Checkpoints
from training.loop.progress import Progress
from training.loop.world import World
from training.telemetry.worker import attempt_observer

RECONNECT_S, RECONNECT_MAX_S = 60.0, 1800.0
"""After a shard could not be written, the pause before a rank connects to a holder again. Normally
the last connection has ended by then: of two of one rank that write into the same memory, the
digests would not be right. The pause doubles with each failure, because all ranks wait for one that
cannot write, up to `WORK_S`. A connection that was usable for the longest pause resets it.
"""


class Stored(Checkpoints, Protocol):
    """The checkpoints on the storage."""

    def newest_step(self) -> int:
        """The step of the newest one, which is not verified; -1 if there is none."""
        ...


class Holders(Protocol):
    """All methods raise OSError if the holders cannot be found out."""

    def known(self) -> Sequence[Address]:
        """Those that were started for the run, on nodes that may be lost."""
        ...

    def of(self, node: str) -> Address:
        """The one of a node, which is started if it has none; on any thread."""
        ...

    def forget(self, lost: Sequence[Address]) -> None:
        """These do not answer, and are not used any more."""
        ...


@dataclass(frozen=True, slots=True)
class _Plan:
    """What rank 0 found."""

    candidates: tuple[WholeSet, ...]
    attempt: int
    """The number of this attempt."""
    why: str
    """Why there is no candidate; '' in the first attempt."""


class MemoryCheckpoints:
    """Every rank calls the same in the same order."""

    def __init__(
        self, stored: Stored, holders: Holders, node: str, world: World, every_steps: int
    ) -> None:
        """`node`: an id of this rank's node."""
        self._stored, self._holders = stored, holders
        self._node, self._world, self._every_steps = node, world, every_steps
        self._nodes: list[str] = []
        self._writer: Writer | None = None
        self._buffers: BufferCopies | None = None
        self._attempt = 0
        self._is_ready = False
        """All ranks could write once."""
        self._is_cut = False
        """After that, this rank could not write."""
        self._failed_s: float | None = None
        """When that was seen of its present connection."""
        self._connected_s = 0.0
        self._pause_s = RECONNECT_S
        self._has_written = False
        self._silent: tuple[Address, ...] = ()
        """The holders that did not answer rank 0 at the start of the attempt."""

    @contextmanager
    def newest(self) -> Iterator[Path | None]:
        """The newest whole step in memory, or the newest checkpoint on the storage if that is newer
        or no step in memory is whole.
        """
        world = self._world
        self._nodes = world.gather_all(self._node)
        plan = world.gather_all(self._plan() if world.rank == 0 else None)[0]
        assert plan is not None
        used: WholeSet | None = None
        with ExitStack() as held:
            directory, why = None, plan.why
            for candidate in plan.candidates:
                directory, why = self._opened(candidate, held)
                if directory is not None:
                    used = candidate
                    break
            if used is None:
                directory = held.enter_context(self._stored.newest())
            if world.rank == 0 and (used or why):
                _report(used is not None, directory, why)
            yield directory
        world.wait()  # all ranks have read it
        if world.rank == 0:
            attempt, step = (used.attempt, used.step) if used else (0, -1)
            self._drop_others(attempt, step)
        world.wait()  # this attempt writes nothing before that
        self._attempt = plan.attempt
        self._connect()

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        self._stored.evaluated(metrics)

    def report(self, metrics: Mapping[str, float], step: int, states: Mapping[str, Any]) -> None:
        self._stored.report(metrics, step, states)

    def before_update(self, step: int) -> float:
        """Call it before the state changes in this step. Returns how long it waited, in seconds."""
        writer = self._writer
        if writer is None or not self._is_ready:
            return 0.0
        began = time.perf_counter()
        writer.wait_for_copy()
        if step % self._every_steps == 0:
            # After this step all ranks know of each other that their last shards are on peers.
            writer.wait_for_peer()
        return time.perf_counter() - began

    def after_step(self, progress: Progress) -> float:
        """Begin to save the state if it is due. Returns how long it took, in seconds."""
        writer = self._writer
        if writer is None or progress.step % self._every_steps:
            return 0.0
        began = time.perf_counter()
        # Also on a rank that cannot write now: in some modes all ranks collect the state together.
        packed = self._packed(progress)
        if self._is_ready or self._becomes_ready(writer, packed):
            is_connected = writer.connected.is_set()  # read first: `why` is set before it
            if writer.why:
                self._connect_again(writer.why)
            elif is_connected:
                self._write(writer, progress.step, packed)
        return time.perf_counter() - began

    def _write(self, writer: Writer, step: int, packed: Callable[[], Packed]) -> None:
        if self._is_cut and self._has_written:  # and the peer has that shard
            self._is_cut = False
            text = f"rank {self._world.rank} writes its shard into memory again"
            _notice("CheckpointsInMemoryAgain", text)
        writer.write(step, packed)
        self._has_written = True

    def _connect(self) -> None:
        world, self._has_written, self._failed_s = self._world, False, None
        self._connected_s = time.monotonic()
        self._writer = Writer(world.rank, world.size, self._attempt, self._nodes_of_shard)

    def _connect_again(self, why: str) -> None:
        """The other ranks continue: with the next shard of this one, a step is whole again."""
        now_s = time.monotonic()
        if self._failed_s is None:
            self._failed_s = now_s
            if now_s - self._connected_s > RECONNECT_MAX_S:  # that failure has another cause
                self._pause_s = RECONNECT_S
        if not self._is_cut:
            self._is_cut = True
            text = f"no checkpoints in memory until rank {self._world.rank} can write: {why}"
            _notice("CheckpointsInMemoryEnd", text)
        if now_s - self._failed_s >= self._pause_s:
            self._pause_s = min(2 * self._pause_s, RECONNECT_MAX_S)
            self._connect()

    def _packed(self, progress: Progress) -> Callable[[], Packed]:
        """A function that describes the state, on any thread, until the state changes."""
        parallel, rank, size = progress.parallel, self._world.rank, self._world.size
        # With whole models, only the first rank has more to save than its generators.
        buffers = {} if parallel.saves_alone and rank else self._copied_buffers(parallel.model)
        if parallel.saves_alone:
            noise = generators.states()
            return lambda: pack(progress.states(rank, size, noise), buffers)
        states = progress.states(rank, size)
        return lambda: pack(states, buffers)

    def _copied_buffers(self, model: nn.Module) -> Mapping[int, Tensor]:
        if self._buffers is None:
            self._buffers = BufferCopies(model)
        return self._buffers.copied()

    def _drop_others(self, attempt: int, step: int) -> None:
        try:
            answering = [one for one in self._holders.known() if one not in self._silent]
            if lost := [*self._silent, *sets.keep(answering, attempt, step)]:
                self._holders.forget(lost)
        except OSError as error:  # each rank sees it when it connects to its holder
            print(f"older copies in memory are not freed: {error}", flush=True)

    def _plan(self) -> _Plan:
        try:
            found = sets.found(self._holders.known())
        except OSError as error:
            # Not the number of an attempt whose copies are still there: these are at most as many.
            attempt = attempt_observer.attempt()
            return _Plan((), attempt, f"the copies in memory cannot be found: {error}")
        if not found.holders:
            # The holders may not have started before the restart, or their owner was lost.
            is_restart = attempt_observer.attempt() > 1
            return _Plan((), 1, "no node has copies in memory" if is_restart else "")
        self._silent = found.lost
        stored = self._stored.newest_step()
        candidates = tuple(item for item in found.sets if item.step >= stored)
        if candidates:
            why = ""
        elif found.lost:
            why = f"{len(found.lost)} of {found.holders} nodes with copies in memory are lost"
        elif found.sets:
            why = f"the newest copies in memory are older, of step {found.sets[0].step}"
        else:
            why = "no step in memory has the copies of all ranks"
        return _Plan(candidates, found.attempt + 1, why)

    def _opened(self, candidate: WholeSet, held: ExitStack) -> tuple[Path | None, str]:
        """A directory with its files, the same for all ranks of a node, or why there is none."""
        first = self._nodes.index(self._node)
        path, why = "", ""
        if self._world.rank == first:
            with attempt_observer.reads() if first == 0 else nullcontext():
                try:
                    path = str(held.enter_context(restored.directory(candidate, self._node)))
                except (Unusable, OSError) as error:
                    why = f"step {candidate.step} in memory cannot be used: {error}"
        answers = self._world.gather_all((path, why))
        for _, failed in answers:
            if failed:
                return None, failed
        return Path(answers[first][0]), ""

    def _nodes_of_shard(self) -> Nodes:
        peer = need.peer_of(self._nodes).get(self._node)
        return Nodes(self._holders.of(self._node), self._holders.of(peer) if peer else None)

    def _becomes_ready(self, writer: Writer, packed: Callable[[], Packed]) -> bool:
        """Whether all ranks can write, so that the steps that they write are whole.

        Raises Stop on every rank if a node has too little memory.
        """
        answers = self._world.gather_all((writer.connected.is_set(), writer.why))
        for rank, (_, why) in enumerate(answers):
            if why:
                self._end(f"rank {rank}: {why}")
                return False
        if not all(connected for connected, _ in answers):
            return False
        room = Room(packed().size_bytes, writer.free_bytes)
        text = need.checked(self._nodes, self._world.gather_all(room))
        if self._world.rank == 0:
            _notice("CheckpointsInMemoryBegin", text)
        self._is_ready = True
        return True

    def _end(self, why: str) -> None:
        """Continue without checkpoints in memory, until the next attempt."""
        _notice(
            "CheckpointsInMemoryEnd", f"no checkpoints in memory until the run is restarted: {why}"
        )
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _report(from_memory: bool, directory: Path | None, why: str) -> None:
    if directory is None:
        text = f"starts at step 0: {why}"
    else:
        manifest = decode((directory / name(0)).read_bytes(), 0)
        where = "memory" if from_memory else "the storage"
        text = f"resumes from {where}, step {manifest.step}{f': {why}' if why else ''}"
    _notice("Resumed", text)


def _notice(reason: str, text: str) -> None:
    """For the events of the run, and for its log."""
    attempt_observer.notice(reason, text)
    print(text, flush=True)
