"""Theme files as Textual themes, and the colours that widgets draw with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.theme import Theme

from cockpit.config.theme_files import CURVES, SEMANTIC_COLORS, ThemeFile, read_theme, themes
from cockpit.model.error import CockpitError

DEFAULT_THEME = "cockpit-dark"
THEME_OF_16_COLORS = "ansi-16"

_STANDS_FOR = {
    "good": "success",
    "warning": "warning",
    "bad": "error",
    "accent": "accent",
    "muted": "foreground",
}
_CURVES_DARK = [
    "#5fb3f9",
    "#f6a54c",
    "#7fd88f",
    "#e78cd2",
    "#f2d45c",
    "#9d8cf5",
    "#5cd6d0",
    "#f47c7c",
]
_CURVES_LIGHT = [
    "#0b62c4",
    "#a15000",
    "#1b7636",
    "#a0278a",
    "#7c6400",
    "#5b3fd1",
    "#00726e",
    "#c02f2f",
]
_CURVES_ANSI = [
    f"ansi_{name}"
    for name in [
        "bright_cyan",
        "bright_yellow",
        "bright_green",
        "bright_magenta",
        "blue",
        "yellow",
        "cyan",
        "bright_red",
    ]
]
_ATTRIBUTES = frozenset(["bold", "dim", "italic", "underline", "reverse", "strike"])


def textual_theme(file: ThemeFile) -> Theme:
    """The file as a Textual theme. CockpitError names the file and what is wrong in it."""
    read = read_theme(file)
    base = read.base
    theme = Theme(
        name=read.name,
        primary=base["primary"],
        secondary=base.get("secondary"),
        warning=base.get("warning"),
        error=base.get("error"),
        success=base.get("success"),
        accent=base.get("accent"),
        foreground=base.get("foreground"),
        background=base.get("background"),
        surface=base.get("surface"),
        panel=base.get("panel"),
        boost=base.get("boost"),
        dark=read.dark,
        ansi=read.ansi,
    )
    return Theme(
        **{
            **vars(theme),
            "variables": {**semantic_variables(theme), **read.semantic, **read.variables},
        }
    )


def load_themes(
    names: Collection[str] | None = None,
) -> tuple[tuple[Theme, ...], tuple[CockpitError, ...]]:
    """Every theme that can be used, and an error for each file that cannot. `names`: of those."""
    good: list[Theme] = []
    bad: list[CockpitError] = []
    for file in themes():
        if names is not None and file.name not in names:
            continue
        try:
            good.append(textual_theme(file))
        except CockpitError as error:
            bad.append(error)
    return tuple(good), tuple(bad)


def semantic_variables(theme: Theme) -> dict[str, str]:
    """The semantic colours for a theme that does not name them, such as Textual's own.

    An app returns them from `get_theme_variable_defaults`, so that `$good` or `$curve-1` may be
    used in stylesheets under any theme.
    """
    generated = theme.to_color_system().generate()
    found = {name: generated[stand_in] for name, stand_in in _STANDS_FOR.items()}
    if theme.ansi:
        found["muted"] = "ansi_bright_black"
        # Textual's own stylesheets use these two under an ANSI theme without giving them a value.
        found["ansi-background"] = "ansi_black" if theme.dark else "ansi_white"
        found["ansi-foreground"] = "ansi_white" if theme.dark else "ansi_black"
        curves = _CURVES_ANSI
    else:
        ink, paper = Color.parse(generated["foreground"]), Color.parse(generated["background"])
        if ink.ansi is None and paper.ansi is None:
            found["muted"] = paper.blend(ink, 0.6, alpha=1).hex
        curves = _CURVES_DARK if theme.dark else _CURVES_LIGHT
    for number in range(CURVES):
        found[f"curve-{number + 1}"] = curves[number]
    return found


def default_theme(color_system: str | None) -> str:
    """The theme for a terminal without a chosen one. `color_system`: Rich's name of its colours.

    16 colours are too few for the tints of the other themes: the row of the cursor has none.
    """
    return THEME_OF_16_COLORS if color_system == "standard" else DEFAULT_THEME


class Palette:
    """Convert a style of the palette to a Rich style: `bad`, `bold curve-2`, `reverse muted`.

    Each part is a semantic colour or an attribute (bold, dim, italic, underline, reverse, strike);
    the style may be empty. An unknown part is a programming error and raises KeyError.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._styles: dict[str, Style] = {"": Style()}

    @classmethod
    def of(cls, app: App[Any]) -> Palette:
        """The palette of the theme that the app shows now."""
        variables = app.theme_variables
        if variables.keys() >= SEMANTIC_COLORS:
            return cls(variables)
        return cls({**semantic_variables(app.current_theme), **variables})

    def style(self, text: str) -> Style:
        if (cached := self._styles.get(text)) is not None:
            return cached
        style = Style()
        for label in text.split():
            if label in _ATTRIBUTES:
                style += Style.parse(label)
            elif label in SEMANTIC_COLORS:
                style += Style(color=Color.parse(self._variables[label]).rich_color)
            else:
                raise KeyError(f"{label!r} is neither a colour of the theme nor an attribute")
        self._styles[text] = style
        return style
