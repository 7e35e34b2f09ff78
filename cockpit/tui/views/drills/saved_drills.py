"""Whether the drills that are kept on this machine are others than a moment ago."""

from __future__ import annotations

from typing import TypeAlias

from cockpit.recorder.drills import DrillHistory

FolderState: TypeAlias = tuple[int, frozenset[str]]
"""When the folder of drills was changed last, and the names in it."""


def folder_state() -> FolderState:
    """Much cheaper than to read them, but it asks the file system: not from the UI."""
    folder = DrillHistory().directory
    try:
        return folder.stat().st_mtime_ns, frozenset(path.name for path in folder.iterdir())
    except OSError:
        return 0, frozenset()
