"""Ranks, collectives and frames as parts of a sentence."""

from __future__ import annotations

from collections.abc import Collection

from cockpit import format
from cockpit.insight.hang.types import GroupState
from cockpit.insight.hang.waits import Wait
from cockpit.model.hang import ProcessGroup
from cockpit.model.run import Placement
from cockpit.store.hang import RankDump


def rank_text(rank: int, placed: Placement | None, dump: RankDump | None) -> str:
    """`rank 1: 10.0.0.4, pid 12; 1 % CPU, 119 B/s of I/O, kernel state S`."""
    where = f"{placed.node_ip}, pid {placed.pid}" if placed is not None and placed.node_ip else ""
    return f"rank {rank}: {'; '.join(part for part in (where, _usage(dump)) if part)}"


def _usage(dump: RankDump | None) -> str:
    if dump is None:
        return "it sends no data"
    cpu, io = dump.dump.cpu_percent, dump.dump.io_bytes_per_s
    state = dump.training.state if dump.training is not None else ""
    parts = [f"{cpu:.0f} % CPU"] if cpu is not None else []
    parts += [f"{format.bytes_text(io)}/s of I/O"] if io is not None else []
    parts += [f"kernel state {state}"] if state else []
    if swapped := dump.dump.swapped_bytes:
        faults = dump.dump.major_faults_per_s or 0.0
        parts.append(f"{format.bytes_text(swapped)} swapped out, {faults:.0f} major page faults/s")
    return ", ".join(parts) or "no usage known"


def collective_text(wait: Wait) -> str:
    shape = f" ({wait.collective.shape})" if wait.collective.shape else ""
    return f"{wait.collective.op} #{wait.collective.seq} of group {group_name(wait.group)}{shape}"


def group_name(group: ProcessGroup | GroupState) -> str:
    if group.description in ("", "undefined"):
        return group.name
    return group.description.replace("default_pg", "default")


def function_of(frame: str) -> str:
    return frame.partition(" (")[0]


def ranks_text(ranks: Collection[int]) -> str:
    text = format.ranks(ranks)
    return f"{text[:1].upper()}{text[1:]}"


def has_or_have(ranks: Collection[int]) -> str:
    return format.verb(len(ranks), "have")


def is_or_are(ranks: Collection[int]) -> str:
    return format.verb(len(ranks), "are")
