"""How much memory the shards need on each node, and whether it has that much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from training.checkpoint.memory.slots import SLOTS
from training.stop import Stop

MARGIN_BYTES = 256 << 20
"""What must be left for other purposes."""


@dataclass(frozen=True, slots=True)
class Room:
    """One rank's shard, and the memory of its node."""

    shard_bytes: int
    free_bytes: int
    """Including what the holder already has, which is used again."""


def peer_of(nodes: Sequence[str]) -> dict[str, str]:
    """By node, the node that has its copies: the next one in the order of ranks.

    `nodes`: the node of each rank. One node alone has no peer.
    """
    order = list(dict.fromkeys(nodes))
    if len(order) == 1:
        return {}
    return {node: order[(at + 1) % len(order)] for at, node in enumerate(order)}


def bytes_by_node(nodes: Sequence[str], shards: Sequence[int]) -> dict[str, int]:
    """SLOTS times the shards of its own ranks and of those whose copies it has."""
    own = {
        node: sum(size for of, size in zip(nodes, shards, strict=True) if of == node)
        for node in dict.fromkeys(nodes)
    }
    needed = {node: SLOTS * size for node, size in own.items()}
    for node, peer in peer_of(nodes).items():
        needed[peer] += SLOTS * own[node]
    return needed


def checked(nodes: Sequence[str], rooms: Sequence[Room]) -> str:
    """What the copies need, as text. Raises Stop if a node has less."""
    needed = bytes_by_node(nodes, [room.shard_bytes for room in rooms])
    free = _free(nodes, rooms)
    short = [node for node in needed if needed[node] + MARGIN_BYTES > free[node]]
    if short:
        node = max(short, key=lambda node: needed[node] - free[node])
        raise Stop(
            f"checkpoints in memory need {_mb(needed[node])} on node {node[:8]}, which has "
            f"{_mb(free[node])} free, and {_mb(MARGIN_BYTES)} must be left: use nodes with more "
            "memory, or memory_every_steps=0"
        )
    most = max(needed, key=lambda node: needed[node])
    where = "on its node and on another" if len(needed) > 1 else "on its node"
    return (
        f"checkpoints in memory: {SLOTS} steps of each shard {where}, "
        f"{_mb(needed[most])} of {_mb(free[most])} free memory"
    )


def _free(nodes: Sequence[str], rooms: Sequence[Room]) -> Mapping[str, int]:
    free: dict[str, int] = {}
    for node, room in zip(nodes, rooms, strict=True):
        free[node] = min(room.free_bytes, free.get(node, room.free_bytes))
    return free


def _mb(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB"
