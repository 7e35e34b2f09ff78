"""Completed drills, one file each, for comparisons and reports.

Files of a newer cockpit are read as far as possible; an unreadable file is reported and skipped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from msgspec import Struct

from cockpit.config import paths
from cockpit.model.decoding.limited_json import loads
from cockpit.model.drill import KeptDrill
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.text import one_line
from cockpit.recorder.codec import CodecError, from_plain, to_plain

KEPT = 500
"""Number of drills; the oldest are deleted first."""
FILE_LIMIT_BYTES = 8 << 20


class Unreadable(Struct, frozen=True):
    path: Path
    why: str


class DrillHistory:
    """`directory` is created by the first write."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or paths.state_dir() / "drills" / "history"

    def keep(self, kept: KeptDrill) -> None:
        """Raises CockpitError when it cannot be written."""
        record = kept.record
        try:
            paths.make_private(self.directory)
            path = self.directory / f"{record.began_s:013.2f}-{_plain(record.id)}.json"
            paths.replace_file(path, json.dumps(to_plain(kept), ensure_ascii=False))
            for old in sorted(self.directory.glob("*.json"))[:-KEPT]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise CockpitError(
                f"The drill cannot be kept in {self.directory}.", error.strerror or str(error)
            ) from error

    def all(self) -> tuple[list[KeptDrill], list[Unreadable]]:
        """All of them, the oldest first."""
        kept, unreadable = [], []
        for path in sorted(self.directory.glob("*.json")):
            try:
                kept.append(_read(path))
            except (OSError, ValueError) as error:
                unreadable.append(Unreadable(path, one_line(str(error))))
        return sorted(kept, key=lambda one: one.record.began_s), unreadable

    def find(self, name: str) -> list[KeptDrill]:
        """Return the drill of this id (or unique prefix), or all drills of a game day.

        `last` is the newest that injected a fault, else the newest. Raises UsageError.
        """
        kept, _ = self.all()
        if name == "last" and kept:
            # A refused drill has no result, and the caller has seen the reason.
            return [([one for one in kept if one.record.drills] or kept)[-1]]
        of_day = [one for one in kept if one.record.game_day.endswith(f"/{name}")]
        exact = [one for one in kept if one.record.id == name]
        begins = [one for one in kept if one.record.id.removeprefix("drill-").startswith(name)]
        found = of_day or exact or begins
        if not found:
            raise UsageError(
                f"There is no drill {one_line(name, 60)!r} in the history.",
                f"It holds {len(kept)}.",
                "cockpit drill history lists them; last is the newest that broke something.",
            )
        if len(found) > 1 and not of_day:
            ids = ", ".join(one.record.id for one in found[:8])
            raise UsageError(f"{name!r} begins several drills: {ids}.", todo="Give the whole id.")
        return found


def _read(path: Path) -> KeptDrill:
    if path.stat().st_size > FILE_LIMIT_BYTES:
        raise CodecError(f"it has more than {FILE_LIMIT_BYTES >> 20} MB")
    return from_plain(KeptDrill, loads(path.read_text(encoding="utf-8")))


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)
