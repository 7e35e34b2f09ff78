"""The steps that are whole: the remaining holders have the shards of all ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from training import connection
from training.checkpoint.memory.slots import Entry
from training.connection import ANSWER_S, Address

STALLED_S = 30.0
"""How long a holder may be stalled if its copies are needed, or were a moment ago."""
_CALLS = 32


@dataclass(frozen=True, slots=True)
class Copy:
    entry: Entry
    at: Address


@dataclass(frozen=True, slots=True)
class WholeSet:
    attempt: int
    step: int
    copies: tuple[tuple[Copy, ...], ...]
    """By rank, one or more."""


@dataclass(frozen=True, slots=True)
class Found:
    sets: tuple[WholeSet, ...]
    """Newest first."""
    attempt: int
    """The newest attempt that has a shard; 0: none."""
    lost: tuple[Address, ...]
    """Those that do not answer."""
    holders: int
    """How many those are, and the ones that have a shard."""


def found(holders: Sequence[Address]) -> Found:
    """Request the shards of all holders. One that is slow is waited for only if it is needed."""
    if not holders:
        return Found((), 0, (), 0)
    calls = ThreadPoolExecutor(min(_CALLS, len(holders)))
    try:
        answers = {address: calls.submit(_entries, address) for address in holders}
        wait(answers.values(), ANSWER_S)
        known = _of(answers)
        if known.sets and known.sets[0].attempt == known.attempt:
            return known
        wait(answers.values(), STALLED_S - ANSWER_S)
        return _of(answers)
    finally:
        calls.shutdown(wait=False, cancel_futures=True)


def _of(answers: Mapping[Address, Future[list[Entry] | None]]) -> Found:
    """What the holders have that have answered by now."""
    entries = {at: call.result() if call.done() else None for at, call in answers.items()}
    copies = [Copy(entry, at) for at, own in entries.items() for entry in own or ()]
    return Found(
        tuple(whole(copies)),
        max((copy.entry.attempt for copy in copies), default=0),
        tuple(at for at, own in entries.items() if own is None),
        sum(own is None or bool(own) for own in entries.values()),
    )


def whole(copies: Iterable[Copy]) -> list[WholeSet]:
    """Newest first: the last attempt's before those of earlier ones."""
    by_set: Mapping[tuple[int, int, int], dict[int, list[Copy]]] = defaultdict(dict)
    for copy in copies:
        entry = copy.entry
        ranks = by_set[entry.attempt, entry.step, entry.world_size]
        ranks.setdefault(entry.rank, []).append(copy)
    return [
        WholeSet(attempt, step, tuple(tuple(ranks[rank]) for rank in range(size)))
        for (attempt, step, size), ranks in sorted(by_set.items(), reverse=True)
        if all(rank in ranks for rank in range(size))
    ]


def keep(holders: Sequence[Address], attempt: int, step: int) -> list[Address]:
    """Free the memory of all shards except those of one step. Returns who does not answer."""
    if not holders:
        return []
    with ThreadPoolExecutor(min(_CALLS, len(holders))) as calls:
        answers = list(calls.map(lambda address: _keep(address, attempt, step), holders))
    return [address for address, answer in zip(holders, answers, strict=True) if not answer]


def _entries(address: Address) -> list[Entry] | None:
    """None if the holder does not answer."""
    try:
        with connection.connected(address, answer_s=STALLED_S) as link:
            connection.send(link, {"op": "entries"})
            return [Entry(**entry) for entry in connection.receive(link)["entries"]]
    except OSError:
        return None


def _keep(address: Address, attempt: int, step: int) -> bool:
    try:
        with connection.connected(address, answer_s=STALLED_S) as link:
            connection.send(link, {"op": "keep", "attempt": attempt, "step": step})
            connection.receive(link)
    except OSError:
        return False
    return True
