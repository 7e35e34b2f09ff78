"""The view of all runs, to filter, sort, tag and compare them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence

from msgspec import to_builtins
from textual import work
from textual.app import ComposeResult

from cockpit.config import paths
from cockpit.insight.metrics.recorded_run import as_tracked
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.tracking import TrackedRun
from cockpit.recorder.reading import annotation
from cockpit.recorder.reading.library import Library, Recorded
from cockpit.recorder.reading.tracked import tracked
from cockpit.sources.polling.thread import in_thread
from cockpit.tui.changes.copies import copies
from cockpit.tui.dialogs.reading import JSON, Reading
from cockpit.tui.keys import shown_key
from cockpit.tui.main.titles import entitle
from cockpit.tui.rows.fields import chosen, lazy_rows
from cockpit.tui.rows.sort import heading
from cockpit.tui.rows.text import facts_text
from cockpit.tui.view_state import Target, ViewState
from cockpit.tui.views.experiments.rows import beside
from cockpit.tui.views.runs.rows import (
    MARKS,
    RunLine,
    details,
    fields,
    is_marked,
    run_lines,
    text_of,
)
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.widgets.table.table import LineTable

READ_EVERY_S = 5.0


class RunsView(SortedView):
    NAME = "runs"
    TABLES = ("runs",)
    KIND = "run"
    DEFAULT_CSS = """
    RunsView LineTable { height: 1fr; border-top: solid $border;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._library = Library(paths.state_dir())
        self._recorded: Sequence[Recorded] = ()
        self._read_s, self._is_reading = -math.inf, False
        self._fields = fields()
        self._lines: dict[str, RunLine] = {}
        self._marked = ""
        """The key of the run to compare with."""
        self._asked = ""
        """The key of the run whose tags and note are being typed."""
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield LineTable(tuple(field.column for field in self._fields), id="runs")

    def redraw(self, state: ViewState) -> None:
        if time.monotonic() - self._read_s >= READ_EVERY_S and not self._is_reading:
            self._is_reading = True
            self._read()
        order = (self.order.by, self.order.down, self.order.text)
        drawn = (int(state.now_s), self._read_s, self._marked, order, self.size)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        lines = run_lines(state.store, self._recorded, state.now_s, self._marked)
        self._lines = {line.key: line for line in lines}
        shown, problem = chosen(
            lines, self._fields, self.order, text=text_of, marks=MARKS, is_marked=is_marked
        )
        table = self.table()
        table.set_empty(
            "Reading the recordings."
            if self._read_s < 0
            else "No runs: none is live here, and none is recorded. "
            f"Press {shown_key('launch')} to launch a job, or run: cockpit record"
        )
        table.set_sort(self.order.by, self.order.down)
        table.set_rows(lazy_rows(shown, self._fields, lambda line: line.key))
        live = sum(line.is_live for line in lines)
        title = heading("Runs", len(shown), len(lines), self.order)
        entitle(table, problem or (f"{title}, {live} live" if live else title))

    def sort_next(self) -> None:
        self.order.next([key for key in self.table().visible_columns if key != "marked"])

    def forget(self) -> None:
        """The recordings are those of all clusters."""
        self._drawn = ()

    @property
    def line(self) -> RunLine | None:
        """The selected run."""
        return self._lines.get(self.table().cursor_key or "")

    def on_line_table_selected(self, message: LineTable.Selected) -> None:
        message.stop()
        self.show_facts()

    def show_facts(self) -> None:
        """All facts of the selected run, and what can be copied of it."""
        if (line := self.line) is not None:
            text = facts_text(details(line))
            name = line.summary.name or line.summary.run_id
            target = Target("run", line.recorded.name if line.recorded else line.summary.run_id)
            summary = json.dumps(to_builtins(line.summary), indent=2)
            more = {**copies(target, None), JSON: ("JSON", summary)}
            self.app.push_screen(Reading(f"Run {name}", text, more))

    # -- tags and notes

    def annotated(self) -> str:
        """The tags and the note of the selected run, as they are typed. Raises CockpitError."""
        line = self.line
        if line is None:
            raise UsageError("No run is selected.")
        if line.recorded is None:
            raise CockpitError(
                "Tags and notes are stored with the recording, and this run is not recorded.",
                todo="Set recorder.enabled, or run: cockpit record",
            )
        self._asked = line.key
        return line.recorded.annotation.line

    def annotate(self, text: str) -> None:
        """Store the tags and the note of the run that was selected. Raises CockpitError.

        Another one may be under the cursor by now: the list is read again while they are typed.
        """
        line = self._lines.get(self._asked)
        if line is not None and line.recorded is not None:
            annotation.write(line.recorded.path, annotation.parsed(text))
            self._read_s = -math.inf

    # -- comparison

    async def compare(self) -> None:
        """Mark the selected run; with another one marked, show what differs. Of a change."""
        line, other = self.line, self._lines.get(self._marked)
        if line is None:
            raise UsageError("No run is selected.")
        if other is None or other.key == line.key:
            self._marked = "" if other is not None else line.key
            if self._marked:
                key = shown_key("compare_runs")
                self.notify(f"Marked. Select another run, and press {key} to compare.", timeout=5)
            self.cockpit.redraw()
            return
        first, second = await self._tracked(other), await self._tracked(line)
        self.app.push_screen(Reading("Two runs", beside(first, second)))

    async def _tracked(self, line: RunLine) -> TrackedRun:
        store = self.cockpit.store
        run = store.runs.get(line.summary.run_id)
        if run is not None and (line.is_live or line.recorded is None):
            return as_tracked(store, run)
        if line.recorded is None:
            raise CockpitError(f"The run {line.summary.name} is not there any more.")
        path = line.recorded.path
        return await in_thread(lambda: tracked(path), "recorded run")

    @work(exit_on_error=False, name="recorded runs")
    async def _read(self) -> None:
        """Read what has changed among the recordings."""
        try:
            self._recorded = await in_thread(self._library.list, "recorded runs")
        finally:
            self._read_s, self._is_reading = time.monotonic(), False
        if self.is_attached:
            self.draw(self.cockpit.view_state())
