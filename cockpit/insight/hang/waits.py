"""Which rank waits in which collective, and for which ranks, by process group and sequence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct, field

from cockpit.model.hang import Collective, Dump, ProcessGroup
from cockpit.store.hang import HangView

PLAUSIBLE_AHEAD = 10_000
"""Collectives that a rank can be ahead of the others of its group, or behind them."""
SAME_SHAPE = frozenset({"all_reduce", "broadcast", "all_gather", "reduce", "reduce_scatter"})
"""Collectives whose input has the same type and sizes on all ranks."""


class Wait(Struct, frozen=True):
    """A rank has called a collective that is not done."""

    rank: int
    group: ProcessGroup
    collective: Collective
    missing: frozenset[int]
    """Members that have not called it, as far as is known."""
    unknown: frozenset[int]
    """Members that make progress: they sent no dump."""


class Mismatch(Struct, frozen=True):
    """Ranks called different collectives under the same sequence number of a group."""

    group: ProcessGroup
    seq: int
    called: dict[str, tuple[int, ...]]
    """By what was called, the most common first: the ranks."""


class Waits(Struct):
    waits: list[Wait] = field(default_factory=list)
    peers: dict[int, int] = field(default_factory=dict)
    """By rank in a `send` or `recv`: the other rank."""
    mismatches: list[Mismatch] = field(default_factory=list)
    reached: dict[ProcessGroup, dict[int, int]] = field(default_factory=dict)
    """By group and rank, the newest collective that the rank called."""
    implausible: tuple[int, ...] = ()
    """Ranks whose sequence numbers cannot be right; they are ignored."""

    def blocked_by(self) -> dict[int, set[int]]:
        """By rank, the ranks that it waits for."""
        found: dict[int, set[int]] = defaultdict(set)
        for wait in self.waits:
            found[wait.rank] |= wait.missing
        for rank, peer in self.peers.items():
            found[rank].add(peer)
        return {rank: others - {rank} for rank, others in found.items() if others - {rank}}


def waits(view: HangView) -> Waits:
    by_group = _reached(view)
    found = Waits(peers=_peers(view), reached=by_group)
    implausible = {rank for rank, dump in view.dumps.items() if _contradicts_itself(dump.dump)}
    entries: dict[ProcessGroup, dict[int, dict[int, Collective]]] = defaultdict(dict)
    for rank, dump in view.dumps.items():
        for one in dump.dump.collectives:
            entries[dump.group(one)].setdefault(one.seq, {})[rank] = one
    for reached in by_group.values():
        usual = sorted(reached.values())[(len(reached) - 1) // 2]
        implausible |= {r for r, seq in reached.items() if abs(seq - usual) > PLAUSIBLE_AHEAD}
    for group, by_seq in entries.items():
        reached = {r: seq for r, seq in by_group.get(group, {}).items() if r not in implausible}
        first = min((seq for seq, of in by_seq.items() if _waiting(of, implausible)), default=None)
        if first is None:
            continue
        if (mismatch := _mismatch(group, first, by_seq[first], implausible)) is not None:
            found.mismatches.append(mismatch)
        missing = frozenset(
            m for m in group.members if m in view.silent or reached.get(m, first) < first
        )
        unknown = frozenset(group.members) - view.dumps.keys() - frozenset(view.silent)
        found.waits += [
            Wait(rank, group, collective, missing, unknown)
            for rank, collective in _waiting(by_seq[first], implausible).items()
        ]
    found.implausible = tuple(sorted(implausible))
    return found


def _contradicts_itself(dump: Dump) -> bool:
    """Whether it waits in a collective although it has completed far later ones of the group."""
    completed = {one.group: one.completed for one in dump.reached}
    return any(
        not one.done and one.seq < completed.get(one.group, 0) - PLAUSIBLE_AHEAD
        for one in dump.collectives
    )


def _waiting(by_rank: Mapping[int, Collective], but: set[int]) -> dict[int, Collective]:
    return {rank: one for rank, one in by_rank.items() if not one.done and rank not in but}


def _reached(view: HangView) -> dict[ProcessGroup, dict[int, int]]:
    """A rank that is in a collective has called it, even if it reports otherwise."""
    found: dict[ProcessGroup, dict[int, int]] = defaultdict(dict)
    for rank, dump in view.dumps.items():
        for one in dump.dump.reached:
            found[dump.groups[one.group]][rank] = one.enqueued
        for each in dump.dump.collectives:
            of_group = found[dump.group(each)]
            of_group[rank] = max(each.seq, of_group.get(rank, 0))
    return found


def _peers(view: HangView) -> dict[int, int]:
    found = {}
    for rank, dump in view.dumps.items():
        if (thread := dump.training) is not None and (peer := dump.stack(thread).peer) >= 0:
            found[rank] = peer
    return found


def _mismatch(
    group: ProcessGroup, seq: int, by_rank: Mapping[int, Collective], but: set[int]
) -> Mismatch | None:
    called: dict[str, list[int]] = defaultdict(list)
    same_op = len({one.op for rank, one in by_rank.items() if rank not in but}) == 1
    for rank, one in sorted(by_rank.items()):
        if rank in but:
            continue
        shape = f" {one.shape}" if one.shape and (not same_op or one.op in SAME_SHAPE) else ""
        called[f"{one.op}{shape}"].append(rank)
    if len(called) < 2:
        return None
    order = sorted(called.items(), key=lambda item: -len(item[1]))
    return Mismatch(group, seq, {what: tuple(ranks) for what, ranks in order})


def cycle(blocked_by: Mapping[int, set[int]]) -> list[int]:
    """Return a cycle of ranks in which each waits for the next; [] without one."""
    for start in sorted(blocked_by):
        path, rank = [start], start
        while True:
            rank = min(blocked_by.get(rank, ()), default=-1)
            if rank < 0:
                break
            if rank in path:
                return path[path.index(rank) :]
            path.append(rank)
    return []
