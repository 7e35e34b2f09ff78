"""One rank's copies of its state into the memory of its node, on a separate thread."""

from __future__ import annotations

import logging
import mmap
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any

import torch

from training import connection
from training.checkpoint.memory.shard import Buffer, Packed
from training.connection import Address, NoAnswer

log = logging.getLogger(__name__)

WORK_S = 30.0
"""How long the holder may take for a shard before the training continues without copies."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The holders of a rank's shard."""

    own: Address
    peer: Address | None
    """Of another node; None if the run has only one."""


class Writer:
    """At most one shard is written at a time. If something fails, `why` contains the reason, and
    nothing is written any more.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        attempt: int,
        nodes: Callable[[], Nodes],
    ) -> None:
        """`nodes` is called on the thread: a holder may have to start first."""
        self._rank, self._world_size, self._attempt = rank, world_size, attempt
        self._nodes = nodes
        self._work = SimpleQueue[tuple[int, Callable[[], Packed], Any] | None]()
        # Locked from `write` until the copy is complete, or the peer has it; faster than an Event.
        self._copying, self._sending = Lock(), Lock()
        self._buffers = dict[int, Buffer]()
        self._stream: Any = None
        """Of a GPU, for copies beside the training's kernels."""
        self.connected = Event()
        self.free_bytes = 0
        """The memory of the node for shards, when it was connected."""
        self.why = ""
        self._thread = Thread(target=self._run, name="checkpoints in memory", daemon=True)
        self._thread.start()

    def write(self, step: int, packed: Callable[[], Packed]) -> None:
        """Begin to write the shard of a step. `packed` is called on the thread.

        The tensors must not change until `wait_for_copy` returns.
        """
        if self.why:
            return
        self._copying.acquire()
        self._sending.acquire()
        done = None
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
        self._work.put((step, packed, done))

    def wait_for_copy(self) -> None:
        """Until the state may change."""
        _wait(self._copying)

    def wait_for_peer(self) -> None:
        """Until the peer has the last shard."""
        _wait(self._sending)

    def close(self) -> None:
        """The holder keeps the shards."""
        self._work.put(None)
        if self.connected.is_set():  # otherwise nothing was written
            self._thread.join(WORK_S)

    def _run(self) -> None:
        try:
            with self._attached() as link:
                self.connected.set()
                while (work := self._work.get()) is not None:
                    self._write(link, *work)
        except Exception as error:
            log.debug("checkpoints in memory end", exc_info=True)
            self.why = str(error) or repr(error)  # the training continues, and reports it
        finally:
            for lock in (self._copying, self._sending):
                if lock.locked():
                    lock.release()
            self.connected.set()

    @contextmanager
    def _attached(self) -> Iterator[socket.socket]:
        nodes = self._nodes()
        peer = nodes.peer
        with connection.connected(nodes.own, local=True) as link:
            link.settimeout(WORK_S)
            connection.send(
                link,
                {
                    "op": "write",
                    "attempt": self._attempt,
                    "rank": self._rank,
                    "world_size": self._world_size,
                    "peer": peer and {"host": peer.host, "port": peer.port},
                },
            )
            self.free_bytes = int(_checked(connection.receive(link))["free"])
            try:
                yield link
            finally:
                for buffer in self._buffers.values():
                    buffer.close()

    def _write(
        self, link: socket.socket, step: int, packed: Callable[[], Packed], done: Any
    ) -> None:
        shard = packed()
        connection.send(link, {"op": "begin", "size_bytes": shard.size_bytes})
        buffer = self._buffer(link)
        self._copy(buffer, shard, done)
        self._copying.release()
        connection.send(link, {"op": "commit", "step": step, "size_bytes": shard.size_bytes})
        _checked(connection.receive(link))
        self._sending.release()

    def _copy(self, buffer: Buffer, shard: Packed, done: Any) -> None:
        """`done`: the event of a GPU after which the state is complete; None without a GPU."""
        if done is None:
            buffer.copy(shard)
            return
        if self._stream is None:
            # The device of a new thread is the first, which may be another rank's.
            self._stream = torch.cuda.Stream(done.device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(done)
            buffer.pin()
            buffer.copy(shard)
        self._stream.synchronize()

    def _buffer(self, link: socket.socket) -> Buffer:
        message, descriptor = connection.receive_with_descriptor(link)
        if descriptor is not None:
            try:
                memory = mmap.mmap(descriptor, int(message["capacity"]))
            finally:
                os.close(descriptor)
            self._buffers[int(message["slot"])] = Buffer(memory)
        return self._buffers[int(_checked(message)["slot"])]


def _wait(lock: Lock) -> None:
    if lock.locked():
        with lock:  # it is released: the thread waits WORK_S at most for the holder
            pass


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    """Raises NoAnswer with the holder's reason if it refuses."""
    if why := answer.get("why"):
        raise NoAnswer(str(why))
    return answer
