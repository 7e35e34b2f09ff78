"""The memory for shards on one node.

It has no name in any file system: the kernel frees it when the holder and the ranks that map it
have ended, however they end.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from threading import Lock

SLOTS = 3
"""For each shard: the newest step that is whole on all nodes, the one that is being sent, and the
one that is being written. With two, a rank could overwrite the former while another rank's shard of
the second is not on its peer yet, and a node that is lost then would leave no whole step.
"""


SLACK_BYTES = 1 << 16
"""A shard grows by some bytes: its description has numbers and names. A slot that is too small
would be replaced, and both would need memory."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A complete shard."""

    attempt: int
    step: int
    rank: int
    world_size: int
    size_bytes: int
    sha256: str


@dataclass(slots=True)
class Slot:
    """Memory for one shard. It is freed with the last reference to it, and the ranks' mappings."""

    file: FileIO
    memory: mmap.mmap
    entry: Entry | None = None
    """None while the shard is written."""

    @property
    def capacity(self) -> int:
        return len(self.memory)


@dataclass(slots=True)
class Slots:
    _of: dict[tuple[int, int], list[Slot]] = field(default_factory=dict)
    """By attempt and rank."""
    _lock: Lock = field(default_factory=Lock)

    def begin(self, attempt: int, rank: int, size_bytes: int) -> Slot:
        """A slot to write the next shard of the rank, never one of its two newest.

        Raises OSError if there is no memory.
        """
        with self._lock:
            own = self._of.setdefault((attempt, rank), [])
            complete = [slot for slot in own if slot.entry is not None]
            if len(complete) >= SLOTS - 1:
                # The older of them is whole on all nodes: the training waits for that. So the
                # checkpoint that this attempt has resumed from is not needed any more.
                self._drop(lambda other: other < attempt)
            unused = [slot for slot in own if slot.entry is None]
            if not unused and len(own) >= SLOTS:
                unused = [min(complete, key=_step)]
            for slot in unused:
                slot.entry = None
                if slot.capacity >= size_bytes:
                    return slot
                own.remove(slot)
        slot = _allocated(size_bytes + SLACK_BYTES)  # takes seconds: others do not wait for it
        with self._lock:
            self._of.setdefault((attempt, rank), []).append(slot)
        return slot

    def keep(self, attempt: int, step: int) -> None:
        """Drop all shards except those of one step. Ranks of other attempts have ended."""
        with self._lock:
            for key, slots in list(self._of.items()):
                slots[:] = [
                    slot
                    for slot in slots
                    if slot.entry is not None and (key[0], slot.entry.step) == (attempt, step)
                ]
                if not slots:
                    del self._of[key]

    def entries(self) -> list[Entry]:
        with self._lock:
            return [slot.entry for slot in self._all() if slot.entry is not None]

    def find(self, attempt: int, step: int, rank: int) -> tuple[Slot, Entry] | None:
        with self._lock:
            for slot in self._of.get((attempt, rank), []):
                if slot.entry is not None and slot.entry.step == step:
                    return slot, slot.entry
        return None

    @property
    def size_bytes(self) -> int:
        with self._lock:
            return sum(slot.capacity for slot in self._all())

    def _all(self) -> Iterator[Slot]:
        for slots in self._of.values():
            yield from slots

    def _drop(self, old: Callable[[int], bool]) -> None:
        for key in [key for key in self._of if old(key[0])]:
            del self._of[key]


def _step(slot: Slot) -> int:
    return -1 if slot.entry is None else slot.entry.step


def _allocated(size_bytes: int) -> Slot:
    file = FileIO(os.memfd_create("checkpoint"), "r+")
    try:
        os.posix_fallocate(file.fileno(), 0, size_bytes)
        return Slot(file, mmap.mmap(file.fileno(), size_bytes))
    except BaseException:
        file.close()
        raise
