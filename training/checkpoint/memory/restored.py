"""A whole step in memory as the directory of a checkpoint, like those on the storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from training import connection
from training.checkpoint.filesystem import temporary_directory
from training.checkpoint.memory.digest import digest
from training.checkpoint.memory.sets import STALLED_S, Copy, WholeSet
from training.checkpoint.memory.shard import NotAShard, unpack
from training.checkpoint.rank_part import write

FETCH_S = 20.0
"""How long a holder may take to send more of a shard."""


class Unusable(Exception):
    """No copy of a shard is as it was written, or none can be read."""


@contextmanager
def directory(found: WholeSet, node: str) -> Iterator[Path]:
    """A temporary directory with the files of all ranks. `node`: where this runs.

    Raises Unusable.
    """
    with temporary_directory() as path:
        for rank, copies in enumerate(found.copies):
            # A copy on this node is not sent over the network.
            nearest = sorted(copies, key=lambda copy: copy.at.node != node)
            try:
                states = unpack(_shard(nearest, node))
            except NotAShard as error:
                raise Unusable(f"the copy of rank {rank} is not usable: {error}") from None
            ranks = {"rank": rank, "world_size": len(found.copies)}
            write(LocalFileSystem(), str(path), states, step=found.step, **ranks)
        yield path


def _shard(copies: Sequence[Copy], node: str) -> memoryview:
    """The bytes of the first copy whose digest is right."""
    reasons = []
    for copy in copies:
        entry = copy.entry
        where = f"the copy of rank {entry.rank} at step {entry.step} on {copy.at.host}"
        try:
            shard = _fetched(copy, local=copy.at.node == node)
        except OSError as error:
            reasons.append(f"{where} cannot be read: {error}")
            continue
        if digest(shard) == entry.sha256:
            return shard
        reasons.append(f"{where} is not what was written: its SHA-256 differs")
    raise Unusable("; ".join(reasons))


def _fetched(copy: Copy, *, local: bool) -> memoryview:
    entry = copy.entry
    with connection.connected(copy.at, local=local, answer_s=STALLED_S) as link:
        link.settimeout(FETCH_S)
        asked = {"attempt": entry.attempt, "step": entry.step, "rank": entry.rank}
        connection.send(link, {"op": "fetch", **asked})
        if connection.receive(link)["size_bytes"] != entry.size_bytes:
            raise connection.NoAnswer("the holder does not have it any more")
        shard = memoryview(bytearray(entry.size_bytes))
        connection.receive_into(link, shard)
    return shard
