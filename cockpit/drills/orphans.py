"""What an earlier cockpit was killed in the middle of: undone by the next one on that cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from cockpit.backends.protocol import Backend
from cockpit.drills import lease, undo
from cockpit.drills.journal import Entry, Journal
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line


@dataclass(frozen=True, slots=True)
class Mended:
    """What became of one entry."""

    entry: Entry
    lines: tuple[str, ...]
    error: CockpitError | None = None
    """Something is left: it is in the journal still."""


async def mend(backend: Backend, journal: Journal, only: str = "") -> AsyncIterator[Mended]:
    """Undo what belongs to this cluster; `only` of the drill of this id.

    Raises CockpitError for a journal that cannot be read.
    """
    for entry in journal.orphans():
        if entry.cluster != backend.ref or not is_of(entry, only):
            continue
        try:
            lines = tuple(await undo.take_all_back(backend, journal, entry))
            # Its process is gone, and with it whoever would have let go of the cluster.
            record_id = entry.drill_id.rpartition(".")[0]
            await backend.release(lease.holder_of(record_id, entry.pid))
            yield Mended(entry, lines)
        except CockpitError as error:
            yield Mended(entry, (), error)


def elsewhere(journal: Journal, backend: Backend) -> list[Entry]:
    """What is left on other clusters."""
    return [entry for entry in journal.orphans() if entry.cluster != backend.ref]


def is_of(entry: Entry, drill_id: str) -> bool:
    """Whether the entry is of that drill, by the id of its record or its own; of any, by ""."""
    return not drill_id or drill_id in (entry.drill_id, entry.drill_id.rpartition(".")[0])


def words(mended: Mended) -> str:
    """In one line."""
    entry = mended.entry
    about = f"drill {entry.drill_id} ({entry.fault} of {entry.target}) was left unfinished"
    if mended.error is None:
        return one_line(f"{about}; {'; '.join(mended.lines)}", 400)
    return one_line(f"{about} and is NOT all undone: {mended.error.why or mended.error.what}", 400)
