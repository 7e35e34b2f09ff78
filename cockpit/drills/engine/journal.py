"""A journal of undos on disk: written before a fault is applied, removed once it is undone.

One file per drill in the state directory, each replaced atomically. If a process is killed in
between, the next start finds what is left. An unreadable file is reported, and the others are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from cockpit.config import paths
from cockpit.config.process_identity import ProcessId, ProcessState
from cockpit.drills.faults.fault import Undo
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line


class Entry(Struct, frozen=True):
    """An effect of one drill that is still to be undone."""

    drill_id: str
    fault: str
    target: str
    cluster: ClusterRef
    written_s: float
    """Unix seconds."""
    undo: tuple[Undo, ...]
    process: ProcessId
    """It runs the drill: while it lives, the undo is its own to do, unless it has given up."""
    answered: bool = False
    """The fault has begun, or can no longer begin. Before that it may still begin, on a lost
    connection."""
    given_up: bool = False
    """The undo at the end of the drill has failed. Its process does not try again, even if it still
    runs."""

    @property
    def is_left(self) -> bool:
        """Whether its process leaves the undo to others: it has given up or ended, or may have
        ended, as on another node.
        """
        return self.given_up or self.process.life is not ProcessState.RUNS

    @property
    def record_id(self) -> str:
        """Of the drill's record, which may have several entries."""
        return self.drill_id.rpartition(".")[0] or self.drill_id


class Unreadable(Struct, frozen=True):
    """An unreadable file of the journal."""

    path: Path
    why: str

    @property
    def line(self) -> str:
        """The problem and its solution, in one line."""
        return one_line(
            f"the journal's file {self.path} cannot be read ({self.why}): undo "
            "its effect manually, and delete the file",
            400,
        )


class Journal:
    """`directory` is made when something is written."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or paths.state_dir() / "drills" / "journal"

    def write(
        self,
        drill_id: str,
        fault: str,
        target: str,
        cluster: ClusterRef,
        undo: Sequence[Undo],
        at_s: float,
        process: ProcessId | None = None,
    ) -> Entry:
        """Write all that this drill has to undo. On disk when it returns; else CockpitError.

        `process` runs the drill; None: this one.
        """
        by = process or ProcessId.own()
        entry = Entry(drill_id, fault, target, cluster, at_s, tuple(undo), by)
        self._replace(entry)
        return entry

    def answered(self, entry: Entry) -> None:
        """Note that the pods or the API have answered. Raises CockpitError."""
        self._replace(replace(entry, answered=True))

    def give_up(self, drill_id: str) -> None:
        """Note that the process of the drill does not try again to undo what remains of it.

        Its drill must be over: from then on another process may undo it. Raises CockpitError.
        """
        entry = self._read(self._path(drill_id))
        if isinstance(entry, Entry):
            self._replace(replace(entry, given_up=True))

    def done(self, drill_id: str, undone: Undo) -> None:
        """This one is undone; the file is removed with the last. Raises CockpitError."""
        path = self._path(drill_id)
        entry = self._read(path)
        if not isinstance(entry, Entry):
            return
        left = [undo for undo in entry.undo if undo != undone]
        if left:
            self._replace(replace(entry, undo=tuple(left)))
        else:
            self._remove(path)

    def forget(self, entry: Entry) -> None:
        """Its effects have ended with its cluster. Raises CockpitError."""
        self._remove(self._path(entry.drill_id))

    def forget_attempts(self, entry: Entry) -> None:
        """Forget it and each entry of the same process for the same effect. Raises CockpitError.

        An earlier attempt stays in the journal if its answer was lost.
        """
        self.forget(entry)
        for other in self.entries():
            if other.process == entry.process and _effect(other) == _effect(entry):
                self.forget(other)

    def of(self, record_id: str) -> list[Entry]:
        """The faults left by the drills of this file, as far as it can be read."""
        found = [self._read(path) for path in sorted(self.directory.glob(f"{record_id}.*.json"))]
        return [entry for entry in found if isinstance(entry, Entry)]

    def entries(self) -> list[Entry]:
        """The readable entries, the oldest first."""
        found = [entry for entry in self._all() if isinstance(entry, Entry)]
        return sorted(found, key=lambda entry: entry.written_s)

    def unreadable(self) -> list[Unreadable]:
        """The unreadable files."""
        return [found for found in self._all() if isinstance(found, Unreadable)]

    def orphans(self) -> list[Entry]:
        """Those whose process has given up or ended, or may have: it ran on another node."""
        return [entry for entry in self.entries() if entry.is_left]

    def _all(self) -> list[Entry | Unreadable | None]:
        return [self._read(path) for path in sorted(self.directory.glob("*.json"))]

    def _path(self, drill_id: str) -> Path:
        return self.directory / f"{drill_id}.json"

    def _replace(self, entry: Entry) -> None:
        try:
            paths.make_private(self.directory)
            text = json.dumps(to_builtins(entry), indent=1)
            paths.replace_file(self._path(entry.drill_id), text, durable=True)
        except OSError as error:
            raise self._cannot_be_written(error) from error

    def _remove(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
            paths.sync_directory(self.directory)
        except OSError as error:
            raise self._cannot_be_written(error) from error

    def _cannot_be_written(self, error: OSError) -> CockpitError:
        return CockpitError(
            f"The journal of undo in {self.directory} cannot be written.",
            error.strerror or str(error),
            "Free some disk space there, or set XDG_STATE_HOME to another directory of yours.",
        )

    def _read(self, path: Path) -> Entry | Unreadable | None:
        try:
            entry = convert(json.loads(path.read_text(encoding="utf-8")), Entry)
            if entry.drill_id != path.stem:
                raise ValueError(f"it is of drill {entry.drill_id}")
            return entry
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return Unreadable(path, f"{type(error).__name__}: {error}")


def _effect(entry: Entry) -> tuple[ClusterRef, str, str, tuple[Undo, ...]]:
    return entry.cluster, entry.fault, entry.target, entry.undo
