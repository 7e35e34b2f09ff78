"""The dumps of one attempt's ranks in few lines: each stack and each process group once a line."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from training.telemetry.wire import (
    HEARTBEAT,
    HEARTBEAT_SILENT_S,
    PROGRESS,
    Dump,
    Hang,
    ProcessGroup,
    Stack,
)

COLLECT_S = 1.0
"""The ranks of a run become late at about the same time: their dumps are one line."""
DUMPS = 4096
SILENT = 256

T = TypeVar("T")


class HangRound:
    """Collect dumps, and the ranks that send nothing."""

    def __init__(
        self,
        run: str,
        attempt: int,
        ranks: Sequence[int],
        clock: Callable[[], float] = time.monotonic,
        collect_s: float = COLLECT_S,
        stale_s: float = HEARTBEAT_SILENT_S,
        late: Collection[int] = (),
    ) -> None:
        """`late`: ranks that may have reported that they are late, before this record."""
        self._run, self._attempt, self._clock = run, attempt, clock
        self._collect_s, self._stale_s = collect_s, stale_s
        self._ranks = ranks
        self._came_s: dict[int, float] = {}
        """By rank with a watchdog: when its newest record arrived."""
        self._late = set(late)
        self._dumps: dict[int, Dump] = {}
        self._stacks: dict[Stack, int] = {}
        self._groups: dict[ProcessGroup, int] = {}
        self._since_s: float | None = None
        """When the oldest of the dumps arrived."""

    def take(self, record: Hang) -> None:
        if record.attempt != self._attempt:
            return
        now_s = self._clock()
        for dump in record.dumps:
            self._came_s[dump.rank] = now_s
            if dump.number == HEARTBEAT or (
                dump.number == PROGRESS and dump.rank not in self._late
            ):
                continue
            if len(self._dumps) < DUMPS or dump.rank in self._dumps:
                self._take(record, dump)
                self._since_s = now_s if self._since_s is None else self._since_s

    def _take(self, record: Hang, dump: Dump) -> None:
        if dump.number == PROGRESS:
            self._late.discard(dump.rank)
        else:
            self._late.add(dump.rank)
        stack_at = [_index(self._stacks, stack) for stack in record.stacks]
        group_at = [_index(self._groups, group) for group in record.groups]
        self._dumps[dump.rank] = replace(
            dump,
            threads=tuple(replace(one, stack=stack_at[one.stack]) for one in dump.threads),
            reached=tuple(replace(one, group=group_at[one.group]) for one in dump.reached),
            collectives=tuple(replace(one, group=group_at[one.group]) for one in dump.collectives),
        )

    def tick(self) -> Hang | None:
        """Return the dumps since the last line; None without any, and while more may follow."""
        now_s = self._clock()
        if self._since_s is None or now_s - self._since_s < self._collect_s:
            return None
        stale = [
            rank for rank in self._ranks if now_s - self._came_s.get(rank, now_s) >= self._stale_s
        ]
        record = Hang(
            run=self._run,
            attempt=self._attempt,
            dumps=tuple(self._dumps.values()),
            stacks=tuple(self._stacks),
            groups=tuple(self._groups),
            silent=tuple(stale[:SILENT]),
        )
        self._dumps, self._stacks, self._groups, self._since_s = {}, {}, {}, None
        return record


def _index(known: dict[T, int], item: T) -> int:
    return known.setdefault(item, len(known))
