"""A log as it grows: follows its end, holds still when scrolled back, filters by a pattern."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.strip import Strip

from cockpit.format import count, plural
from cockpit.logs.level import level, origin_cells
from cockpit.logs.merge import FIRST_ERROR
from cockpit.store.store import LogBuffer
from cockpit.tui.terminal.cells import fit, width_of
from cockpit.tui.widgets.line_widget import LineWidget
from cockpit.tui.widgets.log.lines import LogLines
from cockpit.tui.widgets.scrolling import set_virtual_height

STATUS_LINES = 1
WHEEL_LINES = 3
SIDE_STEP = 16


class LogView(LineWidget, ScrollView, can_focus=True):
    """Shows a `LogBuffer`. Lines are shown literally; they must hold no control sequences."""

    DEFAULT_CSS = Path(__file__).with_suffix(".tcss").read_text(encoding="utf-8")

    COMPONENT_CLASSES: ClassVar[set[str]] = {"log-view--status", "log-view--match"}

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "lines(1)", "Down", show=False),
        Binding("k,up", "lines(-1)", "Up", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("g,home", "first", "First line", show=False),
        Binding("G,end", "follow", "Follow", show=False),
        Binding("left", "side(-1)", "Left", show=False),
        Binding("right", "side(1)", "Right", show=False),
        Binding("n", "match(1)", "Next match", show=False),
        Binding("N", "match(-1)", "Match before", show=False),
        Binding("e", "error", "First error", show=False),
    ]

    def __init__(self, *, empty: str = "No lines yet", id: str | None = None) -> None:
        super().__init__(id=id)
        self._empty = empty
        self._buffer: LogBuffer | None = None
        self._log = LogLines()
        self._following = True
        self._seen = 0
        self._side = 0
        self._error = ""
        self._strips: LRUCache[tuple[str, int, int], Strip] = LRUCache(512)

    def set_empty(self, text: str) -> None:
        """The text without lines."""
        if text != self._empty:
            self._empty = text
            self.refresh()

    @property
    def following(self) -> bool:
        """Whether the newest line stays in sight."""
        return self._following

    @property
    def unread(self) -> int:
        """The number of lines since following was paused."""
        return 0 if self._following else max(0, self._log.total - self._seen)

    @property
    def filter_error(self) -> str:
        """Why the last pattern is invalid; empty if it is valid."""
        return self._error

    @property
    def pattern(self) -> str:
        return self._log.pattern.pattern if self._log.pattern else ""

    def show(self, buffer: LogBuffer) -> None:
        """Show the current lines of this log; call it again when it may have grown.

        Cheap without changes. A new buffer is shown from its end; the filter is kept.
        """
        if buffer is not self._buffer:
            self._buffer = buffer
            pattern, only = self._log.pattern, self._log.only_matching
            self._log = LogLines()
            self._log.update(buffer)
            self._log.set_pattern(pattern, only_matching=only)
            self._following, self._side = True, 0
            self._settle(None)
            self.refresh()
            return
        top, before = self._top_number(), self._in_sight()
        if self._log.update(buffer):
            self._settle(top)
            after = self._in_sight()
            for y in range(self._page):
                if before[y : y + 1] != after[y : y + 1]:
                    self.refresh(Region(0, y, self.size.width, 1))
            self._refresh_status()

    def set_filter(self, pattern: str, *, only_matching: bool = True) -> str:
        """Show only the lines that match a regular expression, or all with the matches marked.

        Lower case matches upper case too; an empty pattern shows all lines. Returns why the pattern
        is invalid, and then changes nothing; empty on success.
        """
        try:
            flags = re.IGNORECASE if pattern == pattern.lower() else 0
            compiled = re.compile(pattern, flags) if pattern else None
        except (re.error, RecursionError, OverflowError) as error:
            self._error = f"/{pattern}/ is not a valid regular expression: {error}"
            self._refresh_status()
            return self._error
        self._error = ""
        top = self._top_number()
        self._log.set_pattern(compiled, only_matching=only_matching)
        self._strips.clear()
        self._settle(top)
        self.refresh()
        return ""

    def action_lines(self, by: int) -> None:
        self._go(self.scroll_offset.y + by)

    def action_page(self, by: int) -> None:
        self._go(self.scroll_offset.y + by * max(1, self._page - 1))

    def action_first(self) -> None:
        self._go(0)

    def action_follow(self) -> None:
        self._go(self._last_top)

    def action_side(self, by: int) -> None:
        top = self.scroll_offset.y
        shown = range(top, min(top + self._page, len(self._log)))
        widest = max((width_of(self._log.line(i)) for i in shown), default=0)
        farthest = max(0, widest - self.scrollable_size.width)
        side = min(max(0, self._side + by * SIDE_STEP), max(farthest, 0))
        if side != self._side:
            self._side = side
            self.refresh()

    def action_match(self, by: int) -> None:
        """To the next line that matches, when all lines are shown."""
        pattern, top = self._log.pattern, self.scroll_offset.y
        if pattern is None or self._log.is_filtered:
            return self.action_lines(by)
        places = range(top + 1, len(self._log)) if by > 0 else range(top - 1, -1, -1)
        for place in places:
            if pattern.search(self._log.line(place)):
                return self._go(place)
        return None

    def action_error(self) -> None:
        """To the error that is marked as the first of all logs, else to the next error."""
        shown = [self._log.line(place) for place in range(len(self._log))]
        marked = [place for place, line in enumerate(shown) if FIRST_ERROR in line]
        bad = marked or [place for place, line in enumerate(shown) if level(line) == "bad"]
        below = [place for place in bad if place > self.scroll_offset.y]
        if bad:
            self._go((below or bad)[0])

    # The inherited wheel handlers animate, which repaints the log several times a notch.
    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.prevent_default().stop()
        self._go(self.scroll_offset.y + WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.prevent_default().stop()
        self._go(self.scroll_offset.y - WHEEL_LINES)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self._mind(round(new_value) >= self._last_top)

    def on_resize(self) -> None:
        self._settle(self._top_number())
        self.refresh()

    def notify_style_update(self) -> None:
        self._strips.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_size.width
        if y == self.size.height - STATUS_LINES:
            return self._status(width)
        i = y + self.scroll_offset.y
        if i >= len(self._log):
            return self._blank(y, width)
        line = self._log.line(i)
        key = (line, width, self._side)
        strip = self._strips.get(key)
        if strip is None:
            strip = self._strips[key] = self._line(line, width)
        return strip

    @property
    def _page(self) -> int:
        return max(0, self.size.height - STATUS_LINES)

    @property
    def _last_top(self) -> int:
        """The scroll offset at which the last line is the lowest."""
        return max(0, len(self._log) - self._page)

    def _top_number(self) -> int | None:
        """The number of the highest line in sight; None when the end is followed."""
        top = self.scroll_offset.y
        return None if self._following or top >= len(self._log) else self._log.number(top)

    def _in_sight(self) -> list[str]:
        top = self.scroll_offset.y
        return [self._log.line(i) for i in range(top, min(top + self._page, len(self._log)))]

    def _settle(self, top: int | None) -> None:
        """Bring the scroll position in line with the log: its end, or the line that was on top."""
        following = self._following
        set_virtual_height(self, len(self._log) + STATUS_LINES)
        y = self._last_top if top is None else min(self._log.place(top), self._last_top)
        self.scroll_to(y=y, animate=False, force=True)
        self._mind(following)

    def _go(self, y: int) -> None:
        y = min(max(0, y), self._last_top)
        self.scroll_to(y=y, animate=False, force=True)
        self._mind(y >= self._last_top)

    def _mind(self, following: bool) -> None:
        """Note whether the end is in sight."""
        if following != self._following:
            self._following = following
            self._seen = self._log.total
            self._refresh_status()

    def _refresh_status(self) -> None:
        self.refresh(Region(0, self.size.height - STATUS_LINES, self.size.width, 1))

    def _line(self, line: str, width: int) -> Strip:
        palette, base = self.palette, self.rich_style
        plain = base + palette.style(level(line))
        edges: list[tuple[int, int, Style]] = []
        if origin := origin_cells(line):
            edges.append((0, origin, base + palette.style("muted")))
        if self._log.pattern is not None:
            match = self.get_component_rich_style("log-view--match")
            edges += [
                (found.start(), found.end(), match)
                for found in self._log.pattern.finditer(line)
                if found.end() > found.start()
            ]
        segments: list[Segment] = []
        at = 0
        for start, end, style in edges:
            if (start := max(start, at)) > at:
                segments.append(Segment(line[at:start], plain))
            if end > start:
                segments.append(Segment(line[start:end], style))
                at = end
        segments.append(Segment(line[at:], plain))
        strip = Strip(segment for segment in segments if segment.text)
        more = strip.cell_length > self._side + width
        strip = strip.crop_extend(self._side, self._side + width, base)
        if more and width > 1:
            strip = Strip.join(
                [strip.crop(0, width - 1), Strip([Segment("›", base + palette.style("muted"))], 1)]
            )
        return strip

    def _blank(self, y: int, width: int) -> Strip:
        base = self.rich_style
        if y or len(self._log):
            return Strip.blank(width, base)
        text = self._empty
        if self._log.is_filtered and self._log.lines:
            text = f"None of {count(len(self._log.lines))} lines matches /{self.pattern}/"
        return Strip([Segment(fit(f" {text}", width), base + self.palette.style("muted"))], width)

    def _status(self, width: int) -> Strip:
        palette = self.palette
        base = self.get_component_rich_style("log-view--status")
        if self._error:
            return Strip([Segment(fit(f" {self._error}", width), base + palette.style("bad"))])
        if self._following:
            state, text = " following", "good"
        else:
            new = f" +{count(self.unread)} new" if self.unread else ""
            state, text = f" paused{new}", "warning"
        lines = len(self._log.lines)
        parts = [plural(self._log.total, "line")]
        if lines < self._log.total:
            parts.append(f"the last {count(lines)} kept")
        if self._log.pattern is not None:
            found = self._log.matches
            parts.append(f"/{self.pattern}/ in {count(found)}")
        if self._side:
            parts.append(f"from column {self._side + 1}")
        if not self._following:
            parts.append("G follows")
        rest = fit("  " + " · ".join(parts), max(0, width - len(state)))
        segments = [
            Segment(fit(state, min(width, len(state))), base + palette.style(text)),
            Segment(rest, base + palette.style("muted")),
        ]
        return Strip(segments).adjust_cell_length(width, base)
