"""Finding and reading theme files. Textual is not needed for it.

A theme is one TOML file named after itself. `[colors]` holds Textual's base colours (`primary` is
required), `[semantic]` the names that the widgets draw with, `[variables]` Textual's finer ones.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from cockpit.config import bundled
from cockpit.config.paths import config_dir
from cockpit.model.error import CockpitError, UsageError

BASE_COLORS = frozenset(
    [
        "primary",
        "secondary",
        "accent",
        "foreground",
        "background",
        "surface",
        "panel",
        "boost",
        "success",
        "warning",
        "error",
    ]
)
CURVES = 8
"""How many colours a chart has before they repeat."""
SEMANTIC_COLORS = frozenset(
    ["good", "warning", "bad", "muted", "accent", *(f"curve-{n + 1}" for n in range(CURVES))]
)
_TOP_LEVEL = frozenset(["description", "dark", "ansi", "colors", "semantic", "variables"])
_ANSI = "black|red|green|yellow|blue|magenta|cyan|white"
_COLOR = re.compile(rf"#[0-9a-fA-F]{{6}}|ansi_(default|(bright_)?({_ANSI}))")


class ThemeFile(Struct, frozen=True):
    """A theme that can be chosen by name; its content is not read yet."""

    name: str
    path: Path
    own: bool
    """Whether the file is in the user's configuration directory."""


class ThemeColors(Struct, frozen=True):
    """The content of one theme file. Colours are `#rrggbb` or `ansi_…`."""

    name: str
    description: str
    dark: bool
    ansi: bool
    """Whether the terminal's own 16 colours are used."""
    base: Mapping[str, str]
    semantic: Mapping[str, str]
    variables: Mapping[str, str]


def theme_dirs() -> tuple[Path, ...]:
    """The directories of themes, the user's own first: one there hides a bundled namesake."""
    return (config_dir() / "themes", bundled.themes())


def themes() -> tuple[ThemeFile, ...]:
    """Every theme that can be chosen, by name."""
    found: dict[str, ThemeFile] = {}
    own = theme_dirs()[0]
    for folder in theme_dirs():
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, ThemeFile(path.stem, path, folder == own))
    return tuple(found[name] for name in sorted(found))


def theme_named(name: str) -> ThemeFile:
    """The theme of that name; UsageError lists the known ones."""
    for theme in themes():
        if theme.name == name:
            return theme
    names = ", ".join(theme.name for theme in themes())
    raise UsageError(f"There is no theme named {name!r}", todo=f"Choose one of: {names}")


def read_theme(theme: ThemeFile) -> ThemeColors:
    """The theme's content. CockpitError names the file and what is wrong in it."""
    try:
        found = tomllib.loads(theme.path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _broken(theme, error.strerror or str(error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _broken(theme, str(error)) from error
    if unknown := found.keys() - _TOP_LEVEL:
        raise _broken(theme, f"unknown key {min(unknown)!r}")
    base = _colors(theme, found, "colors", BASE_COLORS)
    if "primary" not in base:
        raise _broken(theme, "[colors] needs primary")
    return ThemeColors(
        name=theme.name,
        description=str(found.get("description", "")),
        dark=_flag(theme, found, "dark", True),
        ansi=_flag(theme, found, "ansi", False),
        base=base,
        semantic=_colors(theme, found, "semantic", SEMANTIC_COLORS),
        variables=_table(theme, found, "variables"),
    )


def _flag(theme: ThemeFile, found: Mapping[str, object], key: str, default: bool) -> bool:
    value = found.get(key, default)
    if not isinstance(value, bool):
        raise _broken(theme, f"{key} must be true or false")
    return value


def _table(theme: ThemeFile, found: Mapping[str, object], key: str) -> Mapping[str, str]:
    table = found.get(key, {})
    if not isinstance(table, dict):
        raise _broken(theme, f"{key} must be a table: [{key}]")
    for name, value in table.items():
        if not isinstance(value, str):
            raise _broken(theme, f"{name} in [{key}] must be a string")
    return MappingProxyType({str(name): str(value) for name, value in table.items()})


def _colors(
    theme: ThemeFile, found: Mapping[str, object], key: str, allowed: frozenset[str]
) -> Mapping[str, str]:
    table = _table(theme, found, key)
    for name, value in table.items():
        if name not in allowed:
            raise _broken(theme, f"unknown color {name!r} in [{key}]")
        if not _COLOR.fullmatch(value):
            raise _broken(theme, f"{name} = {value!r} is neither #rrggbb nor ansi_<colour>")
    return table


def _broken(theme: ThemeFile, why: str) -> CockpitError:
    return CockpitError(
        f"The theme {theme.name} cannot be used",
        f"{theme.path}: {why}",
        "Fix the file, or choose another theme: cockpit themes",
    )
