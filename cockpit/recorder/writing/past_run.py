"""A recording of a run that is over, from events that were stored elsewhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from cockpit.config import paths
from cockpit.model.error import CockpitError
from cockpit.model.event import Event, JobsListed, NodesListed
from cockpit.model.run import RunSummary
from cockpit.recorder.file import Lock, LockedError, remove
from cockpit.recorder.writing.event_filter import EventFilter
from cockpit.recorder.writing.writer import Writer

COMMIT_EVENTS = 10_000


def write(path: Path, summary: RunSummary, events: Sequence[Event]) -> None:
    """Write the recording of the run of `summary`; of `events`, in order, those that concern it.

    The lists of nodes and jobs were read after the run: they belong to its end. Raises CockpitError
    if the file exists or cannot be written. It appears as a whole, or not at all.
    """
    try:
        paths.make_private(path.parent)
        lock = Lock(path)
        lock.take()
        try:
            if path.exists():
                raise CockpitError(
                    f"There is a recording of the run already: {path.stem}.",
                    todo=f"To import it again: cockpit recordings delete {path.stem}",
                )
            _write_whole(path, summary, events)
        finally:
            lock.release()
    except LockedError as error:
        raise CockpitError(f"{path.stem} is being recorded now.") from error
    except (OSError, sqlite3.Error) as error:
        raise CockpitError(f"{path} cannot be written.", str(error)) from error


def _write_whole(path: Path, summary: RunSummary, events: Sequence[Event]) -> None:
    part = path.with_name(f".{path.name}.part")
    remove(part)  # of an import that was killed: SQLite would apply its log to the new file
    try:
        _write(Writer(part), summary, events)
        part.rename(path)
        paths.sync_directory(path.parent)
    except BaseException:
        remove(part)
        raise


def _write(writer: Writer, summary: RunSummary, events: Sequence[Event]) -> None:
    chosen, waiting = EventFilter(summary.run_id), 0
    try:
        for event in events:
            if summary.ended_s is not None and isinstance(event, NodesListed | JobsListed):
                event = replace(event, at_s=min(event.at_s, summary.ended_s))
            for kept in chosen.kept(event, event.at_s):
                writer.put(kept, kept.at_s)
                waiting += 1
            if waiting >= COMMIT_EVENTS:
                writer.commit(summary, 0)
                waiting = 0
        for kept in chosen.rest():
            writer.put(kept, kept.at_s)
        writer.commit(summary, 0, last=True)
        # `close` does it too, but leaves a log that does not fit on the disk beside the file.
        writer.db.execute("PRAGMA journal_mode = DELETE")
    finally:
        writer.close()
