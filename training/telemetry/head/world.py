"""The ranks of one run: each record of a small world, spreads of a large one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from training.telemetry.head.quantiles import outliers, spreads
from training.telemetry.settings import FULL_RANKS, LARGE_TICK_S, SILENT_AFTER_S, TURN_RANKS
from training.telemetry.wire import Steps, Tick

_STALE_REPORTED = 256
_STARTLED_REPORTED = 64


class _Newest(NamedTuple):
    steps: Steps
    s: float
    """The time by the aggregator's clock: those of the ranks may differ."""


class World:
    """Collect the ranks' records as they arrive and return ticks to write.

    Up to `full_ranks` ranks every record is in a tick. Above, memory and lines are bounded: the
    newest record of each rank is kept, and a tick has the spreads over the ranks that sent one, the
    outliers, and `turn_ranks` others, which alternate, so that each is included every ranks /
    turn_ranks ticks.
    """

    def __init__(
        self,
        run: str,
        clock: Callable[[], float] = time.monotonic,
        full_ranks: int = FULL_RANKS,
        turn_ranks: int = TURN_RANKS,
        large_tick_s: float = LARGE_TICK_S,
        silent_after_s: float = SILENT_AFTER_S,
    ) -> None:
        self._run, self._clock = run, clock
        self._full_ranks, self._turn_ranks = full_ranks, turn_ranks
        self._large_tick_s, self._stale_after_s = large_tick_s, silent_after_s
        self._attempt = 0
        self._began_s = 0.0
        self._ranks: tuple[int, ...] = ()
        """The placements from the start of the attempt."""
        self._newest: dict[int, _Newest] = {}
        self._waiting: list[Steps] = []
        """In a small world: records that were not written yet."""
        self._fresh: set[int] = set()
        """In a large one: ranks that sent a record since the last tick."""
        self._startled: dict[int, Steps] = {}
        """In a large one: a record that must not be missed, of ranks since the last tick."""
        self._reported_stale: set[int] = set()
        self._ticked_s = -math.inf
        self._turn = 0

    @property
    def is_large(self) -> bool:
        return max(len(self._ranks), len(self._newest)) > self._full_ranks

    @property
    def newest(self) -> Sequence[Steps]:
        """By rank of the attempt: when its last record arrived."""
        return [last_updates.steps for last_updates in self._newest.values()]

    @property
    def attempt(self) -> int:
        return self._attempt

    def begins(self, attempt: int, ranks: Sequence[int]) -> None:
        """A new attempt; its ranks count as stale until their first record."""
        self._enter(attempt)
        self._ranks = tuple(ranks)

    def _enter(self, attempt: int) -> None:
        self._attempt, self._began_s, self._turn = attempt, self._clock(), 0
        self._ranks = ()
        self._reported_stale = set()
        self._newest.clear()
        self._fresh.clear()
        self._startled.clear()

    def without_known(self, records: Sequence[Steps]) -> list[Steps]:
        """Drop each rank's records up to its newest known one, if that is among them: a rank whose
        call had no answer sends its records again, before the later ones.
        """
        known, new = set[int](), []
        for record in reversed(records):
            newest = self._newest.get(record.rank)
            if newest is not None and identity(record) == identity(newest.steps):
                known.add(record.rank)
            if record.rank not in known:
                new.append(record)
        return new[::-1]

    def take(self, records: Sequence[Steps]) -> None:
        for record in records:
            if record.attempt > self._attempt:
                self._enter(record.attempt)  # its start has not arrived yet
            if record.attempt < self._attempt:
                self._waiting.append(record)  # the last record of an attempt, written unchanged
                continue
            before = self._newest.get(record.rank)
            self._newest[record.rank] = _Newest(record, self._clock())
            if not self.is_large:
                self._waiting.append(record)
                continue
            self._fresh.add(record.rank)
            if _startles(before.steps if before else None, record):
                self._startled[record.rank] = record

    def tick(self, *, now: bool = False) -> Tick | None:
        """The tick to write; None if there is nothing, or not yet. `now`: do not wait."""
        waiting, self._waiting = self._waiting, []
        if not self.is_large:
            return Tick(run=self._run, ranks=tuple(waiting)) if waiting else None
        at_s = self._clock()
        is_time = now or at_s - self._ticked_s >= self._large_tick_s
        stale = self._stale(at_s) if is_time else {}
        if not is_time or not (self._fresh or waiting or set(stale) != self._reported_stale):
            self._waiting = waiting
            return None
        self._ticked_s, self._reported_stale = at_s, set(stale)
        live = [
            last_updates.steps for rank, last_updates in self._newest.items() if rank not in stale
        ]
        found = spreads(live or self.newest)
        reported = dict(sorted(self._startled.items())[:_STARTLED_REPORTED])
        for rank in (*sorted(outliers(found)), *self._in_turn()):
            if rank in self._fresh or rank not in reported:
                reported.setdefault(rank, self._newest[rank].steps)
        reporting = len(self._fresh)
        self._fresh.clear()
        for rank in reported:
            self._startled.pop(rank, None)
        return Tick(
            run=self._run,
            ranks=(*waiting, *reported.values()),
            spreads=found,
            attempt=self._attempt,
            reporting=reporting,
            silent=tuple(stale)[:_STALE_REPORTED],
        )

    def _in_turn(self) -> list[int]:
        """The ranks after those of the last tick, among those that sent a record."""
        ranks = sorted(self._newest)
        later = [rank for rank in ranks if rank >= self._turn]
        chosen = (later + ranks)[: min(self._turn_ranks, len(ranks))]
        self._turn = chosen[-1] + 1
        return chosen

    def _stale(self, at_s: float) -> dict[int, None]:
        """Ranks that sent no record for a while, the longest first."""
        quiet = []
        for rank in set(self._ranks).union(self._newest):
            last_updates = self._newest.get(rank)
            stale_s = at_s - (last_updates.s if last_updates else self._began_s)
            if stale_s >= self._stale_after_s:
                quiet.append((-stale_s, rank))
        return {rank: None for _, rank in sorted(quiet)}


def identity(steps: Steps) -> tuple[object, ...]:
    """Of a record within its run: numbers that are NaN do not compare as equal."""
    return steps.rank, steps.attempt, steps.step, steps.t


def _startles(before: Steps | None, now: Steps) -> bool:
    """A loss that is not finite, or a device that reports an error."""
    if now.loss is not None and not math.isfinite(now.loss):
        return before is None or before.loss is None or math.isfinite(before.loss)
    if before is None:
        return bool(now.gpu_xid)
    return (now.gpu_xid, now.gpu_ecc_errors) != (before.gpu_xid, before.gpu_ecc_errors)
