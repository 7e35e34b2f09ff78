"""The pictures of the UI: one of them is drawn, every view has one, and the empty ones help."""

from __future__ import annotations

import re

import pytest

from cockpit.cli.verbs import BY_NAME
from cockpit.tui.keys import KEYS, NUMBERS, VIEWS
from cockpit.tui.widgets.chart.chart import LineChart
from cockpit.tui.widgets.table.table import LineTable
from tests.tui import pictures
from tests.tui.conftest import Open

EMPTY = {name: pictures.PICTURES[name].keys for name in pictures.PICTURES if "-empty" in name}
EMPTY["runs-empty"] = "r"
BOUND = {key.shown for key in KEYS} | set(NUMBERS.values()) | {"esc"}


def has_action(text: str) -> bool:
    """Whether the text names a key, or a command of cockpit."""
    pressed = set(re.findall(r"[Pp]ress (\S+?)[ ,.]", text))
    named = {name for name in re.findall(r"cockpit (\w+)", text) if name in BY_NAME}
    return pressed <= BOUND and bool(pressed | named)


@pytest.mark.parametrize("name", EMPTY)
async def test_empty_panel_describes_what_to_do(cockpit: Open, name: str) -> None:
    async with cockpit(simulation=pictures.nothing(), at_s=1) as seen:
        await seen.press(*EMPTY[name])
        # The first and the last line name keys in every view.
        await seen.until(lambda: has_action(" ".join(seen.text.split("\n", 1)[1].split()[:-2])))
        screen = seen.app.screen
        tables = [table.empty for table in screen.query(LineTable) if not table.rows]
        charts = [chart.options.empty for chart in screen.query(LineChart) if chart.region]
        assert all(has_action(text) for text in (*tables, *charts) if text)


@pytest.mark.parametrize("key", ["2", "4", "5"])
async def test_filter_that_hides_all_rows_describes_how_to_show_them(
    cockpit: Open, key: str
) -> None:
    async with cockpit() as seen:
        await seen.press(key, "slash", *"nothing", "enter")
        await seen.sees("No row contains “nothing”. Press esc to show all rows.")
        await seen.press("escape")
        assert "No row contains" not in seen.text


async def test_picture_has_the_size_and_the_data() -> None:
    [(svg, text)] = await pictures.draw(pictures.PICTURES["pods"], "ascii", [(80, 24)])
    assert "llm-train-head" in text
    assert text.isascii()
    assert len(text.splitlines()) == 24
    assert svg.startswith("<svg")


def test_every_view_has_a_picture() -> None:
    assert set(VIEWS) <= set(pictures.PICTURES)
