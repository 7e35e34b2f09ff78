"""Standard streams that are writable in any shell and locale.

They also remove control sequences, which a name or message of a cluster may contain.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO

from cockpit.model.error import UsageError
from cockpit.model.text import for_terminal

PLAIN = {"–": "-", "—": "-", "…": "...", "→": "->", "·": "-", "×": "x", "’": "'", "✓": "+"}
"""Replacements for characters that the locale lacks; any other becomes a question mark."""


def prepare() -> None:
    """Before anything is printed or opened."""
    _reopen_closed()
    codecs.register_error("cockpit", _plainer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors != "cockpit":
            stream.reconfigure(errors="cockpit")
    sys.stdout, sys.stderr = _gated(sys.stdout), _gated(sys.stderr)


class Gated:
    """A text stream that writes no control characters except newlines and tabs.

    Its `buffer` passes bytes through unchanged, for output that a user requested in raw form.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(for_terminal(text))
        return len(text)

    def write_raw(self, text: str) -> None:
        """Write a sequence that cockpit itself made of checked parts."""
        self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _gated(stream: TextIO) -> TextIO:
    return stream if isinstance(stream, Gated) else Gated(stream)  # type: ignore[return-value]


def log(line: str) -> None:
    """A line of progress, best effort: it never stops the work that it reports.

    After a hang-up there is no terminal, but a cluster may still have to be deleted.
    """
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _reopen_closed() -> None:
    """`>&-` closes a stream; the next file that is opened would get its number and its output."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is given, and those below are open by now.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _plainer(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in lost), error.end


NO_SCREEN = ("dumb", "unknown")
"""Values of TERM for a terminal that cannot move its cursor (terminfo(5))."""


def require_terminal(todo: str) -> None:
    """Raise UsageError without a terminal; `todo` describes the alternative."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "The UI needs a terminal, but standard input or output is not one.", todo=todo
        )
    if (name := os.environ.get("TERM", "")) in NO_SCREEN:
        raise UsageError(
            f"The UI needs a terminal that can move its cursor, and TERM is {name}.",
            "Set TERM to what the terminal is, such as xterm-256color.",
            todo,
        )
