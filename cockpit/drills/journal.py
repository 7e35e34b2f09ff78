"""What has to be undone, on disk: written before a fault is applied, gone once it is undone.

One file a drill under the state directory, each replaced whole. Whatever was killed in between, the
next start finds what is left and undoes it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cockpit import paths
from cockpit.drills.fault import Undo
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError


@dataclass(frozen=True, slots=True)
class Entry:
    """What one drill has left to undo."""

    drill_id: str
    fault: str
    target: str
    cluster: ClusterRef
    written_s: float
    undo: tuple[Undo, ...]
    pid: int
    """The process that runs the drill: while it lives, the undo is its own to do."""
    boot: str
    """Of the machine that `pid` is of; after a boot it is nobody."""
    born: str = ""
    """When that process began, as its kernel counts: another one may have its number by now."""


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
    ) -> None:
        """All that this drill has to undo by now. On disk when it returns; else CockpitError."""
        entry = Entry(
            drill_id, fault, target, cluster, at_s, tuple(undo), os.getpid(), _boot(), _born()
        )
        self._replace(entry)

    def done(self, drill_id: str, undone: Undo) -> None:
        """This one is undone; the file goes with the last."""
        entry = self._read(self._path(drill_id))
        if entry is None:
            return
        left = [undo for undo in entry.undo if undo != undone]
        if not left:
            self._path(drill_id).unlink(missing_ok=True)
            return
        self._replace(replace(entry, undo=tuple(left)))

    def forget(self, entry: Entry) -> None:
        """Its effects are gone without us."""
        self._path(entry.drill_id).unlink(missing_ok=True)

    def of(self, record_id: str) -> list[Entry]:
        """What the drills of this record have left. Raises CockpitError as `entries` does."""
        found = [self._read(path) for path in sorted(self.directory.glob(f"{record_id}.*.json"))]
        return [entry for entry in found if entry is not None]

    def entries(self) -> list[Entry]:
        """The oldest first. Raises CockpitError for a file that cannot be read."""
        found = [self._read(path) for path in sorted(self.directory.glob("*.json"))]
        return sorted((e for e in found if e is not None), key=lambda e: e.written_s)

    def orphans(self) -> list[Entry]:
        """Those whose process is gone: nobody will undo them but whoever asks now."""
        return [entry for entry in self.entries() if not _is_alive(entry)]

    def _path(self, drill_id: str) -> Path:
        return self.directory / f"{drill_id}.json"

    def _replace(self, entry: Entry) -> None:
        try:
            paths.make_private(self.directory)
            fd, name = tempfile.mkstemp(dir=self.directory, prefix=".", suffix=".tmp")
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(asdict(entry), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path(entry.drill_id))
        except OSError as error:
            raise CockpitError(
                f"The journal of undo in {self.directory} cannot be written.",
                error.strerror or str(error),
                "Make room there, or set XDG_STATE_HOME to a directory of yours.",
            ) from error

    def _read(self, path: Path) -> Entry | None:
        try:
            raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            undo = tuple(Undo(**(one | {"argv": tuple(one["argv"])})) for one in raw.pop("undo"))
            return Entry(undo=undo, cluster=ClusterRef(**raw.pop("cluster")), **raw)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CockpitError(
                f"The journal {path} cannot be read.",
                f"{type(error).__name__}: {error}",
                "Look into it, undo by hand what it names, and remove it.",
            ) from error


def _is_alive(entry: Entry) -> bool:
    if entry.boot != _boot() or (entry.born and entry.born != _born(entry.pid)):
        return False
    try:
        os.kill(entry.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _born(pid: int | None = None) -> str:
    """In clock ticks since the boot (proc(5), field 22 of stat); "" where nobody says."""
    try:
        stat = Path(f"/proc/{pid or 'self'}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[19]  # the name before it may hold anything
    except (OSError, IndexError):
        return ""


def _boot() -> str:
    """Of this machine; "" where the kernel does not say (then a pid alone counts)."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
