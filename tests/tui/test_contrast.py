"""Text can be read in every bundled theme: 4.5:1, the contrast that WCAG 2.2 asks for (AA)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.style import Style
from textual._context import visible_screen_stack
from textual.color import Color

from cockpit.config.theme_files import SEMANTIC_COLORS, theme_named
from cockpit.model.cluster import ClusterPattern
from cockpit.tui.app import CockpitApp
from cockpit.tui.theme import textual_theme
from tests.tui.conftest import Open
from tests.tui.drilled import drilled

LEAST = 4.5
THEMES = ("cockpit-dark", "cockpit-light", "high-contrast")
"""The bundled themes with colours of their own: those of ansi-16 are the terminal's."""
VIEWS = {"1": "Recovery", "2": "RANK", "4": "PHASE", "6": "FAULT", "8": "Diagnosis"}
"""The key of each view that is drawn, and a text in it."""


@pytest.mark.parametrize("name", THEMES)
def test_theme_colors_can_be_read_on_every_background(name: str) -> None:
    theme = textual_theme(theme_named(name))
    colors = theme.to_color_system().generate()
    papers = [Color.parse(colors[paper]) for paper in ("background", "surface", "panel")]
    inks = {ink: Color.parse(theme.variables[ink]) for ink in SEMANTIC_COLORS}
    inks |= {ink: Color.parse(colors[ink]) for ink in ("foreground", "primary", "error")}
    contrasts = {
        ink: min(contrast(color, paper) for paper in papers) for ink, color in inks.items()
    }
    assert not {ink: found for ink, found in contrasts.items() if found < LEAST}


def contrast(one: Color, other: Color) -> float:
    """1 (the same) to 21 (black and white), as WCAG 2.2 defines it."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: Color) -> float:
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in color.normalized
    ]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def texts(app: CockpitApp) -> Iterator[tuple[str, Style]]:
    """Each text of the screen with its style; not the symbols of charts and borders."""
    visible_screen_stack.set(app._background_screens)
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            if segment.style is not None and any(map(str.isalnum, segment.text)):
                yield segment.text.strip(), segment.style


async def test_choice_and_protection_are_marked_in_16_colors(cockpit: Open) -> None:
    async with cockpit(protected=[ClusterPattern()]) as seen:
        seen.app.theme = "ansi-16"
        await seen.sees("PROTECTED")
        assert dict(texts(seen.app))["PROTECTED"].reverse, "the terminal's own background as ink"
        await seen.press("L")
        await seen.sees("digits")
        styles = {text.split()[0]: style for text, style in texts(seen.app)}
        assert styles["digits"].underline, "enter chooses it"
        assert not styles["pipeline"].underline
        await seen.press("enter", "j")
        await seen.sees("epochs")
        styles = {text.split()[0]: style for text, style in texts(seen.app)}
        assert styles["epochs"].underline
        assert not styles["workers"].underline


def unreadable(app: CockpitApp) -> dict[str, float]:
    found = {}
    for text, style in texts(app):
        assert style.color is not None, text
        assert style.bgcolor is not None, text
        ratio = contrast(Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor))
        if ratio < LEAST:
            found[text] = ratio
    return found


async def test_text_of_views_can_be_read_in_every_theme(cockpit: Open) -> None:
    """On the row of the cursor and in the line of a drill, too."""
    async with cockpit(simulation=drilled(), at_s=112, size=(120, 40)) as seen:
        for theme in THEMES:
            seen.app.theme = theme
            for key, shown in VIEWS.items():
                await seen.press(key)
                await seen.sees(shown)
                assert not unreadable(seen.app), (theme, shown)
