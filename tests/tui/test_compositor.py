"""The compositor that renders only what an update shows, against Textual's own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from rich.console import Console
from textual._compositor import ChopsUpdate, Compositor
from textual.content import Content
from textual.events import Key
from textual.geometry import Region
from textual.strip import Strip

from cockpit.tui.main.frame import Tabs
from cockpit.tui.terminal import compositor
from cockpit.tui.terminal.compositor import FrontCompositor, SpansUpdate
from cockpit.tui.widgets.table.table import LineTable
from tests.tui import headless
from tests.tui.conftest import Open
from tests.tui.simulated_kubernetes import kube, many

Chops = Sequence[Mapping[int, Strip | None]]


@pytest.fixture(autouse=True)
def rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render each update, which other tests of the screen do not."""
    monkeypatch.setattr(Compositor, "render_update", headless.textuals_render_update)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of lines of each update; all were compared with those of Textual."""
    counts: list[int] = []
    ours = FrontCompositor._get_renders
    chops: Callable[..., Chops] = Compositor._render_chops

    def both(self: FrontCompositor, crop: Region, is_line: Callable[[int], bool]) -> Chops:
        monkeypatch.setattr(FrontCompositor, "_get_renders", ours)
        mine = chops(self, crop, is_line)
        theirs_of = partial(Compositor._get_renders, self)
        monkeypatch.setattr(FrontCompositor, "_get_renders", lambda _, region: theirs_of(region))
        theirs = chops(self, crop, is_line)
        lines = [y for y in crop.line_range if is_line(y)]
        for y in lines:
            assert _cells(mine[y], crop) == _cells(theirs[y], crop), (y, crop)
        counts.append(len(lines))
        return mine

    monkeypatch.setattr(FrontCompositor, "_render_chops", both)
    return counts


def _cells(line: Mapping[int, Strip | None], crop: Region) -> list[tuple[int, object]]:
    return [
        (x, list(strip) if strip is not None else None)
        for x, strip in line.items()
        if crop.x <= x < crop.right
    ]


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_each_update_is_as_textuals(
    cockpit: Open, compared: list[int], size: tuple[int, int]
) -> None:
    async with cockpit(simulation=kube(), size=size) as seen:
        for keys in ("4", "jjjk", "1", "?", ("escape",), "5", "2", "j", ("enter",), ("escape",)):
            await seen.press(*keys)
            seen.pilot.app.screen.refresh()
            await seen.pilot.pause()
    assert max(compared) == size[1], "all of the screen was drawn at least once"
    assert min(compared) < size[1], "and parts of it"


async def test_scrolled_table_is_drawn_without_what_is_behind_it(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cockpit(simulation=many(1_000), size=(200, 50)) as seen:
        await seen.press("4")
        await seen.sees("worker")
        await seen.press(*"j" * 40)
        await seen.pilot.pause()
        drawn: list[str] = []
        renders = FrontCompositor._get_renders

        def note(self: FrontCompositor, crop: Region | None = None) -> object:
            for render in renders(self, crop):
                drawn.append("x" * render[2][0].cell_length if render[2] else "")
                yield render

        monkeypatch.setattr(FrontCompositor, "_get_renders", note)
        await seen.press("j")
        await seen.pilot.pause()
        assert 0 < len(drawn) <= 4, "the table, its scrollbar, and the text below it"


async def test_a_key_of_a_table_is_painted_before_it_returns_and_once_a_frame(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans: list[tuple[int, int, int]] = []
    render = FrontCompositor.render_partial_update

    def note(self: FrontCompositor) -> ChopsUpdate | None:
        update = render(self)
        spans.extend(update.spans if update else ())
        return update

    async with cockpit(simulation=many(1_000), size=(200, 50)) as seen:
        await seen.press("4")
        await seen.sees("worker")
        await seen.pilot.pause()
        screen = seen.pilot.app.screen
        table, clock = screen.query_one("#pods", LineTable), screen.query_one(Tabs)
        monkeypatch.setattr(FrontCompositor, "render_partial_update", note)
        monkeypatch.setattr(compositor, "FRAME_S", 3_600.0)
        monkeypatch.setattr(screen._compositor, "painted_s", -math.inf)
        screen._dirty_widgets.add(clock)
        clock.refresh()
        with table._context():
            key = Key("j", "j")
            await table.on_key(key)
            assert key._stop_propagation
            assert [y for y, _, _ in spans] == [0, 4, 5], "what waits on the screen, and two rows"
            spans.clear()
            await table.on_key(Key("j", "j"))
            assert not spans
        await seen.pilot.pause()
        assert {5, 6} <= {y for y, _, _ in spans}


async def test_only_the_changed_cells_of_a_line_are_sent(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    render = SpansUpdate.render_segments

    def note(self: SpansUpdate, console: Console) -> str:
        sent.append(render(self, console))
        return sent[-1]

    monkeypatch.setattr(SpansUpdate, "render_segments", note)
    async with cockpit(simulation=kube(), size=(200, 50)) as seen:
        await seen.press("4")
        screen = seen.pilot.app.screen
        tabs = screen.query_one(Tabs)
        monkeypatch.setattr(Tabs, "draw", lambda *arguments: None)  # the app redraws each second
        tabs.show(Content("cockpit 10:00:07").pad_right(184))
        await seen.pilot.pause()
        tabs.show(Content("cockpit 10:00:18").pad_right(184))
        screen._compositor.update_widgets({tabs})
        update = screen._compositor.render_partial_update()
        assert update is not None
        text = update.render_segments(seen.pilot.app.console)
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == "\x1b[1;15H18"
