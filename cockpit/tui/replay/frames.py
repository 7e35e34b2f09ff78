"""The UI over the time of a recording, without a terminal: the frames of a replay in a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual._context import visible_screen_stack

from cockpit.format import duration
from cockpit.model.text import clean, one_line
from cockpit.recorder.reading.player import Player
from cockpit.report.replay import Frames, Look, Span
from cockpit.tui.keys import TITLES
from cockpit.tui.main.frame import KeyBar
from cockpit.tui.main.screen import MainScreen
from cockpit.tui.replay.app import ReplayApp
from cockpit.tui.replay.bar import ReplayBar
from cockpit.tui.replay.session import connection
from cockpit.tui.terminal.cells import width_of

Progress = Callable[[int], None]
MARKERS = 60
AFTER_MARKER_S = 1.0
"""The UI shows what a marker is of shortly after it."""


def times(player: Player, count: int) -> list[float]:
    """About `count` moments from the beginning to the end, and one after each marker."""
    begin_s, end_s = player.begin_s, player.end_s
    even = [begin_s + (end_s - begin_s) * at / max(1, count - 1) for at in range(count)]
    marked = [min(end_s, marker.at_s + AFTER_MARKER_S) for marker in player.markers[:MARKERS]]
    return sorted({*even, *(at_s for at_s in marked if at_s >= begin_s)})


async def frames(
    player: Player,
    moments: Sequence[float],
    *,
    views: Sequence[str],
    size: tuple[int, int],
    progress: Progress = lambda done: None,
) -> Frames:
    """Each view at each moment. `progress` is called with the number of moments that are done."""
    found = Frames(size[0], [TITLES[view] for view in views])
    await _draw(found, player, [(at_s, views) for at_s in moments], size, progress)
    found.start = len(found.frames) - 1  # how it ended; Play begins at the beginning
    for marker in player.markers[:MARKERS]:
        at = next((n for n, at_s in enumerate(moments) if at_s >= marker.at_s), 0)
        found.markers.append((at, one_line(f"{marker.kind}: {marker.text}", 60)))
    return found


async def film(
    player: Player,
    moments: Sequence[float],
    *,
    views: Sequence[str],
    size: tuple[int, int],
    progress: Progress = lambda done: None,
) -> Frames:
    """One view at each moment: the time is divided evenly between `views`, in their order."""
    found = Frames(size[0], [""])
    shown = [views[len(views) * at // len(moments)] for at in range(len(moments))]
    shots = [(at_s, [view]) for at_s, view in zip(moments, shown, strict=True)]
    await _draw(found, player, shots, size, progress)
    return found


async def _draw(
    found: Frames,
    player: Player,
    shots: Sequence[tuple[float, Sequence[str]]],
    size: tuple[int, int],
    progress: Progress,
) -> None:
    """Add a frame for each shot: a moment, and the views of it."""
    numbers: dict[tuple[Span, ...], int] = {}
    styles: dict[Look, int] = {}
    made = connection(player)
    app = ReplayApp(lambda log: made)
    try:
        async with app.run_test(size=size) as pilot:
            while app.connection is None or not app.capabilities:
                await pilot.pause(0.02)
            screen = app.screen
            assert isinstance(screen, MainScreen)
            screen.query_one(KeyBar).display = screen.query_one(ReplayBar).display = False
            for done, (at_s, views) in enumerate(shots):
                player.seek(at_s)
                player.settle()
                app.tick()
                frame = []
                for view in views:
                    await screen.action_view(view)
                    await pilot.pause()
                    frame.append(
                        [
                            numbers.setdefault(line, len(numbers))
                            for line in _lines(app, styles)[: size[1]]
                        ]
                    )
                found.frames.append(frame)
                since_s, total_s = at_s - player.begin_s, player.end_s - player.begin_s
                found.times.append(f"{duration(since_s)} of {duration(total_s)}")
                progress(done + 1)
    finally:
        made.close()
    found.lines, found.styles = list(numbers), list(styles)


def _lines(app: ReplayApp, styles: dict[Look, int]) -> list[tuple[Span, ...]]:
    visible_screen_stack.set(app._background_screens)
    return [_spans(strip, app, styles) for strip in app.screen._compositor.render_strips()]


def _spans(
    segments: Iterable[Segment], app: ReplayApp, styles: dict[Look, int]
) -> tuple[Span, ...]:
    """Adjacent text of one style is one span, except text that a font may draw wider."""
    spans: list[Span] = []
    for text, style, control in segments:
        if control or not text:
            continue
        text = clean(text)
        number = styles.setdefault(_look(style or Style(), app), len(styles))
        if spans and spans[-1][1] == number and spans[-1][0].isascii() and text.isascii():
            text = spans.pop()[0] + text
        spans.append((text, number, width_of(text)))
    return tuple(spans)


def _look(style: Style, app: ReplayApp) -> Look:
    theme = app.ansi_theme
    front = style.color.get_truecolor(theme, True).hex if style.color else ""
    back = style.bgcolor.get_truecolor(theme, False).hex if style.bgcolor else ""
    if style.reverse:
        front, back = back, front
    return Look(
        front,
        back,
        bool(style.bold),
        bool(style.italic),
        bool(style.underline),
        bool(style.dim),
    )
