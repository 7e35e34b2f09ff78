"""A marker file that exists during a fault: when it is removed, the fault's process ends.

An undo that precedes its fault writes into the marker that the fault must not begin.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cockpit.drills.pod_scripts.linux.process import Failed

REFUSED = "refused"


def marker(name: str) -> Path:
    """Of a fault whose effect is on this pod alone."""
    return Path(tempfile.gettempdir()) / f".{name}"


def claim(path: Path) -> None:
    """Begin a fault. Raises Failed if its undo came first."""
    try:
        path.open("x").close()
    except FileExistsError:
        if not is_refused(path):
            raise
        path.unlink()
        raise Failed("it was undone before it began") from None


def require(path: Path) -> None:
    """Raises Failed where the fault was undone since it was claimed."""
    if not path.exists() or is_refused(path):
        raise Failed("it was undone before it began")


def refuse(path: Path) -> bool:
    """Whether the fault has not begun, and cannot begin any more."""
    try:
        with path.open("x") as opened:
            opened.write(REFUSED)
    except FileExistsError:
        return is_refused(path)
    return True


def is_refused(path: Path) -> bool:
    try:
        return path.read_text() == REFUSED
    except FileNotFoundError:
        return False
