"""The recordings that there are, and which are deleted."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from cockpit.model.error import CockpitError, UsageError
from cockpit.model.run import RunState, RunSummary
from cockpit.recorder import file
from cockpit.recorder.file import is_held
from cockpit.recorder.reading import annotation
from cockpit.recorder.reading.annotation import Annotation
from cockpit.recorder.reading.recording import Recording

DIRECTORY = "recordings"
DAY_S = 86_400.0
FRESH_S = 600.0
"""Whether a recorder on another node has suspended a file cannot be found out. Of 1,000 runs each
is written every two minutes."""

Stamp = tuple[tuple[int, int, int], ...]
"""Inode, size and time of the last change of each part of a recording."""


class Limits(Struct, frozen=True):
    """Limits of the stored recordings; 0: no limit."""

    max_age_days: float = 90.0
    """Since the last event."""
    max_bytes: int = 10_000_000_000
    """Of all recordings together."""


class Recorded(Struct, frozen=True):
    path: Path
    summary: RunSummary
    size_bytes: int
    begin_s: float = 0.0
    end_s: float = 0.0
    recording: bool = False
    """It is being written now."""
    trouble: str = ""
    """Why it cannot be read, in one line."""
    annotation: Annotation = Annotation()

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def note(self) -> str:
        """What is special about it, and the user's note; in one line."""
        status = "being recorded" if self.recording else ""
        if not self.recording and not self.summary.state.is_over:
            status = "left before its end"  # the last recorded state: later ones are not known
        return "; ".join(filter(None, (self.trouble or status, self.annotation.note)))


class Pruned(Struct, frozen=True):
    removed: tuple[Path, ...] = ()
    errors: tuple[str, ...] = ()
    """One a recording that cannot be removed; empty when all were."""


class Library:
    """The directory `recordings` under a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.directory = state_dir / DIRECTORY
        self._read: dict[Path, tuple[Stamp, Recorded]] = {}
        """A cache of what was read from each file, valid while the file is unchanged."""

    def path_of(self, run_id: str) -> Path:
        """The path of a run's recording; no file is accessed."""
        return self.directory / f"{_plain(run_id)[:120] or 'run'}{file.SUFFIX}"

    def list(self) -> Sequence[Recorded]:
        """Newest first, including unreadable ones with their errors."""
        read = {}
        for path in self._paths():
            stamp = _stamp(path)
            cached = self._read.get(path)
            row = cached[1] if cached is not None and cached[0] == stamp else _recorded(path)
            read[path] = stamp, row
        self._read = read
        found = [replace(row, recording=is_held(row.path)) for _, row in read.values()]
        return sorted(found, key=lambda one: (one.end_s, one.path.name), reverse=True)

    def summaries(self) -> Sequence[RunSummary]:
        """Of all that can be read: what a run is compared with."""
        return [one.summary for one in self.list() if not one.trouble]

    def find(self, name: str) -> Path:
        """Find a recording.

        By path, by file name or a prefix or suffix of it, by run id, run name, or submission id.
        Raises CockpitError when none or several match.
        """
        if not name:
            raise UsageError("The name of the recording is empty.", todo="See: cockpit recordings")
        given = Path(name).expanduser()
        if given.suffix == file.SUFFIX or "/" in name:
            if given.exists():
                return given
            inside = self.directory / given.name
            if "/" not in name and inside.exists():
                return inside
            raise UsageError(
                f"There is no recording {name}.", todo="cockpit recordings lists them."
            )
        rows = self.list()
        for wanted in (
            [one for one in rows if name in (one.name, one.summary.run_id)],
            [one for one in rows if name == one.summary.name],
            [one for one in rows if name == one.summary.submission_id],
            [one for one in rows if one.name.startswith(name) or one.name.endswith(name)],
        ):
            if len(wanted) == 1:
                return wanted[0].path
            if wanted:
                names = ", ".join(one.name for one in wanted[:5])
                raise UsageError(
                    f"{len(wanted)} recordings could be meant by {name!r}.",
                    f"They are: {names}{', …' if len(wanted) > 5 else ''}.",
                    "Name one of them as a whole.",
                )
        if given.exists():
            return given
        raise UsageError(
            f"There is no recording {name!r}.",
            "" if rows else f"There are none in {self.directory}.",
            "cockpit recordings lists the recordings; cockpit record creates one.",
        )

    def delete(self, path: Path) -> None:
        """Raises CockpitError while it is being written."""
        if is_held(path):
            raise CockpitError(
                f"{path.stem} is being recorded now.", todo="Stop its recorder, or wait for it."
            )
        _remove(path)

    def prune(self, limits: Limits, now: Callable[[], float] = time.time) -> Pruned:
        """Delete the oldest recordings until the limits hold; never one that is being written."""
        ages = sorted((_newest_s(path), path, _size(path)) for path in self._paths())
        total = sum(size for _, _, size in ages)
        removed: list[Path] = []
        errors: list[str] = []
        for at_s, path, size in ages:
            age_s = now() - at_s
            if abs(age_s) < FRESH_S:
                continue
            old = limits.max_age_days and age_s > limits.max_age_days * DAY_S
            much = limits.max_bytes and total > limits.max_bytes
            if (old or much) and not is_held(path):
                try:
                    _remove(path)
                except OSError as error:
                    errors.append(str(error))
                    continue
                removed.append(path)
                total -= size
        return Pruned(tuple(removed), tuple(errors))

    def _paths(self) -> Sequence[Path]:
        try:
            return sorted(self.directory.glob(f"*{file.SUFFIX}"))
        except OSError:
            return []


def _recorded(path: Path) -> Recorded:
    size, unknown = _size(path), RunSummary("", path.stem, "", RunState.UNKNOWN)
    notes = annotation.read(path)
    try:
        with Recording.open(path) as found:
            return Recorded(
                path, found.run, size, found.begin_s, found.end_s, False, found.damage, notes
            )
    except CockpitError as error:
        return Recorded(path, unknown, size, trouble=error.what_and_why, end_s=_newest_s(path))
    except (OSError, sqlite3.Error) as error:
        return Recorded(path, unknown, size, trouble=str(error), end_s=_newest_s(path))


def _stats(parts: Sequence[Path]) -> list[os.stat_result]:
    found = []
    for part in parts:
        with suppress(FileNotFoundError):
            found.append(part.stat())
    return found


def _stamp(path: Path) -> Stamp:
    parts = [*file.parts(path), annotation.path_of(path)]
    return tuple((of.st_ino, of.st_size, of.st_mtime_ns) for of in _stats(parts))


def _size(path: Path) -> int:
    return sum(of.st_size for of in _stats(file.parts(path)))


def _newest_s(path: Path) -> float:
    return max((of.st_mtime for of in _stats(file.parts(path))), default=0.0)


def _remove(path: Path) -> None:
    file.remove(path)
    annotation.path_of(path).unlink(missing_ok=True)


def _plain(text: str) -> str:
    """As part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")
