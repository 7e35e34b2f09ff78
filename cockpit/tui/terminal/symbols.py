"""Which characters pictures are drawn with: braille breaks in some fonts and in some tmux."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from enum import StrEnum

from cockpit.model.error import UsageError

VARIABLE = "COCKPIT_SYMBOLS"


class Symbols(StrEnum):
    """From finest to safest."""

    BRAILLE = "braille"
    BLOCK = "block"
    """Unicode's block elements."""
    ASCII = "ascii"


def symbols_from(environ: Mapping[str, str], encoding: str = "utf-8") -> Symbols:
    """The symbol set of the environment. UsageError on an unknown one.

    By default braille, or ASCII if the encoding of the terminal, which the locale sets, has none.
    """
    name = environ.get(VARIABLE, "").strip().lower()
    if not name:
        return Symbols.BRAILLE if _has_braille(encoding) else Symbols.ASCII
    try:
        return Symbols(name)
    except ValueError as error:
        names = ", ".join(Symbols)
        raise UsageError(
            f"{VARIABLE}={name} is not a symbol set", todo=f"Use one of: {names}"
        ) from error


def _has_braille(encoding: str) -> bool:
    try:
        return bool("⠿".encode(encoding))
    except (UnicodeEncodeError, LookupError):
        return False


class _Choice:
    made: Symbols | None = None


def symbols() -> Symbols:
    """The symbol set in use: the selected one, else that of the environment."""
    if _Choice.made is None:
        written = sys.__stderr__  # by Textual
        _Choice.made = symbols_from(os.environ, written.encoding if written else "utf-8")
    return _Choice.made


def use_symbols(choice: Symbols | None) -> None:
    """Set the symbol set of every picture drawn from now on; None reads the environment again."""
    _Choice.made = choice
