"""Which characters pictures are drawn with: braille breaks in some fonts and in some tmux."""

from __future__ import annotations

import os
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


def symbols_from(environ: Mapping[str, str]) -> Symbols:
    """The symbol set of the environment; braille by default. UsageError on an unknown one."""
    locale_name = environ.get(VARIABLE, "").strip().lower()
    if not locale_name:
        return Symbols.BRAILLE
    try:
        return Symbols(locale_name)
    except ValueError as error:
        names = ", ".join(Symbols)
        raise UsageError(
            f"{VARIABLE}={locale_name} is not a symbol set", todo=f"Use one of: {names}"
        ) from error


class _Choice:
    made: Symbols | None = None


def symbols() -> Symbols:
    """The symbol set in use: the selected one, else that of the environment."""
    if _Choice.made is None:
        _Choice.made = symbols_from(os.environ)
    return _Choice.made


def use_symbols(choice: Symbols | None) -> None:
    """Set the symbol set of every picture drawn from now on; None reads the environment again."""
    _Choice.made = choice
