"""Find, describe and undo the faults that a killed cockpit process left."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from msgspec import Struct

from cockpit.backends.protocol import Backend
from cockpit.config.process_identity import ProcessState
from cockpit.drills.engine import lease, undo
from cockpit.drills.engine.journal import Entry, Journal
from cockpit.format import age, plural
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

RECENT_S = 900.0
"""Older faults are undone only after a confirmation: the cluster has changed since."""
SKEW_S = 60.0
"""An entry that is further in the future than this has an unreliable time."""


class Undone(Struct, frozen=True):
    """The result for one entry of the journal."""

    entry: Entry
    lines: tuple[str, ...]
    error: CockpitError | None = None
    """Something is left: it is in the journal still."""


def left_on(journal: Journal, ref: ClusterRef, only: str = "") -> list[Entry]:
    """Faults left on this cluster, the oldest first; `only`: of the drill with this id."""
    return [entry for entry in journal.orphans() if entry.cluster == ref and is_of(entry, only)]


def elsewhere(journal: Journal, ref: ClusterRef) -> list[Entry]:
    """Entries of other clusters."""
    return [entry for entry in journal.orphans() if entry.cluster != ref]


def is_of(entry: Entry, drill_id: str) -> bool:
    """Whether the entry is of that drill, by the id of its record or its own; of any, by ""."""
    return not drill_id or drill_id in (entry.drill_id, entry.record_id)


def is_recent(entry: Entry, now_s: float) -> bool:
    """Whether it may be undone without a confirmation: recent, and its process has ended."""
    return (
        -SKEW_S <= now_s - entry.written_s <= RECENT_S and entry.process.life is ProcessState.ENDED
    )


def split(entries: Iterable[Entry], now_s: float) -> tuple[list[Entry], list[Entry]]:
    """Split into faults that may be undone without a confirmation, and the others."""
    recent: list[Entry] = []
    others: list[Entry] = []
    for entry in entries:
        (recent if is_recent(entry, now_s) else others).append(entry)
    return recent, others


async def undo_entries(
    backend: Backend,
    journal: Journal,
    entries: Sequence[Entry],
    on_wait: Callable[[str], None] = lambda line: None,
    timing: lease.Timing = lease.TIMING,
) -> AsyncIterator[Undone]:
    """Undo what belongs to this cluster, if it is still in the state in which the drill left it.

    `waits` is called with a line if it takes the duration of a lease to find out whether the drill
    still runs on another node.
    """
    for entry in entries:
        if entry.cluster != backend.ref:
            continue
        holder = lease.holder_of(entry.record_id, entry.process.pid, entry.process.host)
        try:
            if entry.process.life is ProcessState.UNKNOWN:
                holder = lease.holder_of(entry.record_id, os.getpid())
                await lease.acquire(backend, holder, on_wait, timing)
            try:
                lines = tuple(await undo.undo_effects(backend, journal, entry))
            finally:
                # A process that has ended would have released it.
                await backend.release(holder)
            yield Undone(entry, lines)
        except CockpitError as error:
            yield Undone(entry, (), error)


def described(entry: Entry, now_s: float) -> str:
    """Describe the fault, its time, its process, and the effect of an undo, in one line."""
    effects = "; ".join(each.text for each in entry.undo)
    return one_line(f"{_what(entry)} {_when(entry, now_s)}{_where(entry)}. To undo: {effects}", 400)


def outcome(undone: Undone) -> str:
    """The result in one line."""
    about = f"{_what(undone.entry)} unfinished"
    if undone.error is None:
        return one_line(f"{about}; {'; '.join(undone.lines)}", 400)
    why = undone.error.why or undone.error.what
    return one_line(f"{about}, and it is NOT all undone: {why}", 400)


def _what(entry: Entry) -> str:
    return f"Drill {entry.drill_id} left {entry.fault} of {entry.target or entry.cluster.name}"


def _when(entry: Entry, now_s: float) -> str:
    age_s = now_s - entry.written_s
    if age_s < -SKEW_S:
        return "at a time in the future"
    for unit_s, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if (count := int(age_s // unit_s)) > 0:
            return f"{plural(count, name)} ago"
    return f"{age(age_s)} ago"


def _where(entry: Entry) -> str:
    if entry.process.life is not ProcessState.UNKNOWN:
        return ""
    return f" on {entry.process.host or 'another node'}, where it may still run"
