"""The newest dump of each rank that makes no progress."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.model.event import RanksDumped
from cockpit.model.hang import Collective, Dump, ProcessGroup, Stack, Thread
from cockpit.model.run import RankSample


class RankDump(Struct, frozen=True):
    """A dump with the stacks and groups that its indices point to."""

    dump: Dump
    at_s: float
    """When the record was written, by the aggregator's clock."""
    stacks: tuple[Stack, ...]
    groups: tuple[ProcessGroup, ...]

    def stack(self, thread: Thread) -> Stack:
        return self.stacks[thread.stack]

    def group(self, collective: Collective) -> ProcessGroup:
        return self.groups[collective.group]

    @property
    def training(self) -> Thread | None:
        """The thread that runs the training function; None when it has returned."""
        return next((thread for thread in self.dump.threads if thread.is_training), None)


PAST = 3
"""Attempts whose last dumps are kept: the verdict on their end needs them."""


class HangView(Struct):
    """Empty while all ranks make progress."""

    attempt: int = 0
    dumps: dict[int, RankDump] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    at_s: float | None = None
    past: dict[int, HangView] = field(default_factory=dict)
    """By attempt: what its ranks had sent last, of earlier attempts that made no progress."""
    judged: object = None
    """The verdict on these dumps, from `cockpit.insight.hang.verdict`, until they change."""

    def of(self, attempt: int) -> HangView | None:
        """The dumps of that attempt; None without any."""
        found = self if attempt == self.attempt else self.past.get(attempt)
        return found if found is not None and found.dumps else None

    def take(self, event: RanksDumped) -> None:
        if event.attempt < self.attempt:
            return
        if event.attempt > self.attempt:
            self.begin(event.attempt)
        self.at_s, self.silent, self.judged = event.at_s, event.silent, None
        for dump in event.dumps:
            if dump.number > 0:
                bounded = _within(dump, len(event.stacks), len(event.groups))
                self.dumps[dump.rank] = RankDump(bounded, event.at_s, event.stacks, event.groups)
            else:
                self.dumps.pop(dump.rank, None)
        if not self.dumps:
            self.silent = ()

    def begin(self, attempt: int) -> None:
        if self.dumps:
            self.past[self.attempt] = HangView(self.attempt, self.dumps, self.silent, self.at_s)
            for old in sorted(self.past)[:-PAST]:
                del self.past[old]
        self.attempt, self.dumps, self.silent, self.judged = attempt, {}, (), None

    def progressed(self, samples: Iterable[RankSample]) -> None:
        """Add samples. They may be older than the previous dump: both use the same clock."""
        for sample in samples:
            last = self.dumps.get(sample.rank)
            if last is not None and sample.at_s > last.dump.at_s:
                del self.dumps[sample.rank]
                self.judged = None


def _within(dump: Dump, stacks: int, groups: int) -> Dump:
    """Leave out what points to a stack or a group that there is not: a stream may be hostile."""
    return replace(
        dump,
        threads=tuple(one for one in dump.threads if 0 <= one.stack < stacks),
        reached=tuple(one for one in dump.reached if 0 <= one.group < groups),
        collectives=tuple(one for one in dump.collectives if 0 <= one.group < groups),
    )
