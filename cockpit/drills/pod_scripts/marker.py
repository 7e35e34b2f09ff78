"""The file that is there while a fault lasts: with it ends the process that would end the fault.

An undo that comes before its fault puts a word into it, by which the fault does not begin later.
"""

from __future__ import annotations

from pathlib import Path

from cockpit.drills.pod_scripts.process import Failed

REFUSED = "refused"


def claim(path: Path) -> None:
    """Begin a fault. Raises Failed where its undo came first."""
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
