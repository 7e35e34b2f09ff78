"""A text and a line draw again only what has changed."""

from __future__ import annotations

import pytest
from textual.content import Content
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from cockpit.tui.main.frame import Line
from cockpit.tui.widgets.text import Text
from tests.tui.stage import Stage


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch) -> list[Screen[object]]:
    """One item for each new layout of a screen."""
    made: list[Screen[object]] = []
    lay_out = Screen._refresh_layout

    def count(screen: Screen[object], *given: object, **named: object) -> None:
        made.append(screen)
        lay_out(screen, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Screen, "_refresh_layout", count)
    return made


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Region, ...]]:
    """The regions of each refresh of a `Line`."""
    seen: list[tuple[Region, ...]] = []
    refresh = Widget.refresh

    def note(widget: Widget, *given: Region, **named: bool) -> Widget:
        if isinstance(widget, Line):
            seen.append(given)
        return refresh(widget, *given, **named)

    monkeypatch.setattr(Widget, "refresh", note)
    return seen


async def test_text_is_laid_out_again_only_with_another_number_of_lines(
    layouts: list[Screen[object]],
) -> None:
    text = Text("one line")
    async with Stage(text).run_test(size=(20, 10)) as pilot:
        await pilot.pause()
        layouts.clear()
        text.show("another")
        text.show("another")
        await pilot.pause()
        assert not layouts
        assert str(text.content) == "another"
        text.show("longer than one line of this screen")
        await pilot.pause()
        assert layouts
        assert text.size.height == 2
        text.show(Content.styled("short", "bold"))
        await pilot.pause()
        assert text.size.height == 1


async def test_hidden_text_has_the_height_of_its_newest_content_when_it_is_displayed() -> None:
    text = Text("one line")
    async with Stage(text).run_test(size=(20, 10)) as pilot:
        await pilot.pause()
        text.display = False
        await pilot.pause()
        text.show("1\n2\n3")
        await pilot.pause()
        text.display = True
        await pilot.pause()
        assert text.size.height == 3


async def test_text_is_shown_without_markup() -> None:
    text = Text("[bold]a[/bold]")
    text.show("[red]b[/red]")
    assert str(text.content) == "[red]b[/red]"


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        (Content("at 10:00:08 now"), Region(10, 0, 1, 1)),
        (Content("AT 10:00:09 now"), Region(0, 0, 11, 1)),
        (Content("at 10:00:07 now").stylize("bold", 3, 5), Region(3, 0, 2, 1)),
        (Content("at 10:00:07 now and then"), Region(15, 0, 25, 1)),
        (Content("at 時:00:07 now"), Region(3, 0, 2, 1)),
    ],
    ids=["character", "two places", "style", "longer", "wide character"],
)
async def test_line_refreshes_the_cells_that_changed(
    regions: list[tuple[Region, ...]], after: Content, changed: Region
) -> None:
    line = Line()
    async with Stage(line).run_test(size=(40, 3)) as pilot:
        line.show(Content("at 10:00:07 now"))
        await pilot.pause()
        regions.clear()
        line.show(after)
        assert regions == [(changed,)]
        line.show(after)
        assert len(regions) == 1


async def test_line_that_becomes_too_long_gets_its_ellipsis(
    regions: list[tuple[Region, ...]],
) -> None:
    line = Line()
    async with Stage(line).run_test(size=(40, 3)) as pilot:
        line.show(Content("x" * 40))
        await pilot.pause()
        regions.clear()
        line.show(Content("x" * 45))
        assert regions == [(Region(39, 0, 1, 1),)]
