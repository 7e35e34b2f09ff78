"""Whether there is a terminal that a screen can be drawn on."""

from __future__ import annotations

import os
import sys

from cockpit.model.error import UsageError

NO_SCREEN = ("dumb", "unknown")
"""Values of TERM that stand for a terminal that cannot move its cursor (terminfo(5))."""


def require(todo: str) -> None:
    """UsageError when there is none; `todo` is what to do without a screen."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The screen needs a terminal, and this is a pipe or a file.", todo=todo)
    if (name := os.environ.get("TERM", "")) in NO_SCREEN:
        raise UsageError(
            f"The screen needs a terminal that can move its cursor, and TERM is {name}.",
            "Set TERM to what the terminal is, such as xterm-256color.",
            todo,
        )
