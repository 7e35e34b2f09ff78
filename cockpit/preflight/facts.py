"""What the probe reports of a pod, decoded: `pod_scripts/probe.py` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.model.decoding import limited_json
from cockpit.model.text import one_line

MAX_BYTES = 1 << 20
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 16)]


class Room(Struct, frozen=True):
    """A file system of the pod."""

    path: str
    size_bytes: Bytes
    free_bytes: Bytes

    @property
    def used_share(self) -> float:
        return 1 - self.free_bytes / self.size_bytes if self.size_bytes > 0 else 0.0


class Memory(Struct, frozen=True):
    size_bytes: Bytes
    """The container's limit, or the memory of its host."""
    used_bytes: Bytes
    host: str = ""
    """Identifies the host whose memory it is; empty for a container with a limit."""


class Storage(Struct, frozen=True):
    folder: str
    """The storage path, or the nearest folder above it that exists."""
    kind: str
    """The type of the file system: `nfs4`, `overlay`."""
    error: str = ""
    """Why the pod cannot write there."""
    room: Room | None = None
    seen: tuple[str, ...] = ()
    """The marker files that the pod saw when it wrote its own."""


class Facts(Struct, frozen=True):
    python: str
    began_s: float
    now_s: float
    """Unix times by the pod's clock: the probe's start and end."""
    memory: Memory
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of `ray` and `torch`; empty: not installed."""
    missing: tuple[str, ...] = ()
    """Of the requested modules, those that cannot be imported."""
    shm: Room | None = None
    disk: Room | None = None
    """Of Ray's temporary directory."""
    storage: Storage | None = None
    gpus: Count = 0


class Answer(Struct, frozen=True):
    """The answer of one pod, or why there is none."""

    facts: Facts | None = None
    error: str = ""
    sent_s: float = 0.0
    received_s: float = 0.0
    """Unix times by the clock of this host."""
    unseen: tuple[str, ...] | None = None
    """Pods whose marker file this pod does not see; None: not checked."""


def facts(output: str) -> Facts:
    """Decode the probe's output. Raises ValueError, in one line."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise ValueError("the probe printed no result")
    try:
        raw = limited_json.loads(lines[-1], max_bytes=MAX_BYTES)
        return _cleaned(msgspec.convert(raw, Facts))
    except ValueError as error:
        raise ValueError(f"the probe's result is not understood: {one_line(str(error))}") from error


def names(output: str) -> tuple[str, ...]:
    """The visible marker files, as `probe.py seen` prints them. Raises ValueError."""
    raw = limited_json.loads(output.strip().rpartition("\n")[2] or "null", max_bytes=MAX_BYTES)
    return tuple(map(one_line, msgspec.convert(raw, tuple[str, ...])))


def _cleaned(found: Facts) -> Facts:
    storage = found.storage
    if storage is not None:
        storage = replace(
            storage,
            folder=one_line(storage.folder),
            kind=one_line(storage.kind, 40),
            error=one_line(storage.error),
            room=_room(storage.room),
            seen=tuple(map(one_line, storage.seen)),
        )
    return replace(
        found,
        python=one_line(found.python, 40),
        versions={one_line(name, 40): one_line(of, 40) for name, of in found.versions.items()},
        missing=tuple(one_line(name, 80) for name in found.missing),
        memory=replace(found.memory, host=one_line(found.memory.host, 80)),
        shm=_room(found.shm),
        disk=_room(found.disk),
        storage=storage,
    )


def _room(room: Room | None) -> Room | None:
    return replace(room, path=one_line(room.path)) if room is not None else None
