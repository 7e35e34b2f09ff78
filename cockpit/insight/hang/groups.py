"""The process groups and the stacks of a hang, as a verdict lists them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from cockpit.insight.hang.place import Place
from cockpit.insight.hang.types import GroupState, StackGroup
from cockpit.insight.hang.waits import Wait, Waits
from cockpit.model.hang import ProcessGroup, Stack
from cockpit.store.hang import RankDump

STACK_GROUPS = 20
"""This many are kept: those of the cause first, then the largest."""


def group_states(waits: Waits) -> tuple[GroupState, ...]:
    """The collectives that ranks wait in, with the waiting ranks and the missing ones."""
    found: dict[tuple[ProcessGroup, int], list[Wait]] = defaultdict(list)
    for wait in waits.waits:
        found[wait.group, wait.collective.seq].append(wait)
    return tuple(
        GroupState(
            group.name,
            group.description,
            len(group.members),
            tuple(sorted(wait.rank for wait in of)),
            tuple(sorted(of[0].missing)),
            seq,
            of[0].collective.op,
            of[0].collective.shape,
            max(wait.collective.age_s for wait in of),
            _last_called(waits, group),
        )
        for (group, seq), of in found.items()
    )


def _last_called(waits: Waits, group: ProcessGroup) -> dict[int, tuple[int, ...]]:
    by_seq: dict[int, list[int]] = defaultdict(list)
    for rank, seq in sorted(waits.reached.get(group, {}).items()):
        if rank not in waits.implausible:
            by_seq[seq].append(rank)
    return {seq: tuple(ranks) for seq, ranks in sorted(by_seq.items())}


def stack_groups(
    dumps: Mapping[int, RankDump], places: Mapping[int, Place], causes: Collection[int]
) -> tuple[StackGroup, ...]:
    """Ranks with the same stack of their training thread; ranks that cause the hang apart."""
    by_stack: dict[tuple[bool, Stack], list[int]] = defaultdict(list)
    for rank, dump in sorted(dumps.items()):
        stack = dump.stack(dump.training) if dump.training is not None else Stack()
        by_stack[rank in causes, stack].append(rank)
    groups = [
        StackGroup(tuple(ranks), places[ranks[0]], stack, is_cause)
        for (is_cause, stack), ranks in by_stack.items()
    ]
    groups.sort(key=lambda group: (not group.is_cause, -len(group.ranks)))
    return tuple(groups[:STACK_GROUPS])
