"""View 2: a row a rank, and over it a heat map when there are more ranks than rows."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content

from cockpit.format import plural
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.tui.keys import shown_key
from cockpit.tui.main.frame import Line
from cockpit.tui.rows.sort import Order
from cockpit.tui.rows.text import attempt_end, no_run
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.charts.curves import (
    LOSS,
    THROUGHPUT,
    RunChart,
    marks_of,
    shown_for,
)
from cockpit.tui.views.charts.curves import (
    STEP_TIME as STEP_TIMES,
)
from cockpit.tui.views.ranks import heat
from cockpit.tui.views.ranks.columns import COLOURS, STEP_TIME, Field
from cockpit.tui.views.ranks.rows import RankRows, Shown, rank_columns
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.widgets.few_lines import as_content
from cockpit.tui.widgets.heatmap import HEAD_LINES, HeatMap, strip_fold, strip_lines
from cockpit.tui.widgets.table.table import LineTable

PLOTS_BELOW = (LOSS, THROUGHPUT, STEP_TIMES)
"""The charts below the table, where there is room."""
MANY = 200
"""Ranks; of more, a second's rows are built once."""
STRIP_SHARE = 0.34
"""Of the view, at most so much is a strip of heat over the table."""


class RanksView(SortedView):
    NAME = "ranks"
    TABLES = ("ranks",)
    KIND = "rank"
    DEFAULT_CSS = """
    RanksView LineTable { height: 1fr; }
    RanksView HeatMap { display: none; }
    RanksView Horizontal { height: 1fr; display: none; padding: 1 1 0 1; }
    RanksView RunChart { width: 1fr; margin: 0 1 0 0; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._drawn: tuple[object, ...] = ()
        self.ranks = RankRows()
        self.colour = STEP_TIME.column.key
        self.heat = ""
        """`strip`, `full` or `off`, as the user has it; empty: a strip where it helps."""
        self._strip_folds = False
        """A cell of the strip represents several ranks: the full map shows more."""

    def compose(self) -> ComposeResult:
        yield Line(id="summary")
        yield Line(id="spread")
        yield HeatMap(id="heat")
        yield LineTable(rank_columns(None), id="ranks")
        with Horizontal():
            for plot in PLOTS_BELOW:
                yield RunChart(plot)

    def on_mount(self) -> None:
        self.pane = self.query_one("#ranks")

    def redraw(self, state: ViewState) -> None:
        run = current_run(state.store)
        # Telemetry arrives once a second: for a large run the rows are built once a second.
        query = (self.order.by, self.order.down, self.order.text, self.heat, self.colour)
        drawn = (int(state.now_s), run.id if run else "", query, self.size)
        if run is not None and len(run.ranks) > MANY and drawn == self._drawn:
            return
        self._drawn = drawn
        table = self.query_one("#ranks", LineTable)
        shown = self.ranks.rows(state.store, run, state.now_s, self.order)
        if self.ranks.columns != table.columns:
            table.set_columns(self.ranks.columns)
        table.set_sort(self.order.by, self.order.down)
        table.set_rows(shown.rows)
        self._show_text(state, run, shown)
        self._show_heat(shown)
        charts = self.query_one(Horizontal)
        charts.display = shown.total > 0 and self.size.height >= 3 * (shown.total + 2) + 4
        table.styles.height = shown.total + 1 if charts.display else "1fr"
        if charts.display:
            marks = marks_of(state.store, run)
            for chart in shown_for(state, run, self.query(RunChart), PLOTS_BELOW):
                chart.show_ranks(run, marks, state.now_s)

    def toggle_heat(self) -> None:
        """A strip over the table, the full view if that shows more, none."""
        is_there = self.query_one(HeatMap).display
        now = self.heat or ("strip" if is_there else "off")
        self.heat = {"off": "strip", "strip": "full", "full": "off"}[now]
        if self.heat == "full" and not self._strip_folds:
            self.heat = "off"

    def next_colour(self) -> None:
        """Color the heat map by the next metric that some rank reports."""
        there = [field.column.key for field in self._colours()]
        at = there.index(self.colour) if self.colour in there else -1
        self.colour = there[(at + 1) % len(there)] if there else self.colour
        if self.heat == "off":
            self.heat = "strip"

    def on_heat_map_highlighted(self, message: HeatMap.Highlighted) -> None:
        message.stop()
        self.query_one("#ranks", LineTable).move_to(str(message.rank))

    def on_heat_map_selected(self, message: HeatMap.Selected) -> None:
        message.stop()
        table = self.query_one("#ranks", LineTable)
        if table.move_to(str(message.rank)):
            # Not by the table: a message posted on behalf of a parent does not bubble past it.
            self.post_message(LineTable.Selected(table, str(message.rank)))

    def on_line_table_highlighted(self, message: LineTable.Highlighted) -> None:
        if message.key:
            self.query_one(HeatMap).point_at(int(message.key))

    def forget(self) -> None:
        super().forget()
        self._drawn = ()
        self.ranks = RankRows()

    def _colours(self) -> list[Field]:
        there = {field.column.key: field for field in self.ranks.fields}
        return [there[field.column.key] for field in COLOURS if field.column.key in there]

    def _show_text(self, state: ViewState, run: RunView | None, shown: Shown) -> None:
        if run is None:
            text = Content.styled(f" {no_run(state)}", "$muted")
        elif not shown.total:
            waits = " No ranks yet: waiting for an attempt. "
            waits += f"Press {shown_key('all_logs')} for the logs of the run."
            text = Content.styled(waits, "$muted")
        else:
            stale_count = len(shown.stale)
            text = Content.assemble(
                Content.styled(f" {run.name or run.id}", "bold"),
                Content.styled(f"  {_count(len(shown.rows), shown.total, self.order)}", "$muted"),
                Content.styled(f"  {stale_count:,} stale" if stale_count else "", "$warning"),
                _attempt(run),
            )
        if shown.problem:
            text = Content.styled(f" {shown.problem}", "$warning")
        self.query_one("#summary", Line).show(text)
        spread = self.query_one("#spread", Line)
        field = self.ranks.field(self.order.by)
        if field is None or not field.is_number or field.column.key == "rank":
            field = self.ranks.field(self.colour)
        parts = (
            heat.spread_line(field, self.ranks.distribution(field), self.size.width)
            if field is not None
            else []
        )
        spread.display = bool(parts)
        spread.show(as_content(parts))

    def _show_heat(self, shown: Shown) -> None:
        # Before it is laid out it has no size, and any world would seem too large for it.
        size = self.size or self.screen.query_one("#view").size
        field = self.ranks.field(self.colour)
        heat_map = self.query_one(HeatMap)
        table = self.query_one("#ranks", LineTable)
        head = 2 if self.query_one("#spread", Line).display else 1
        room = size.height - head
        most = int(room * STRIP_SHARE) - HEAD_LINES
        strip = HEAD_LINES + max(1, strip_lines(shown.total, size.width, most))
        self._strip_folds = strip_fold(shown.total, size.width, most) > 1
        helps = shown.total > room - 1 and not self.screen.has_class("-tiny")
        mode = self.heat or ("strip" if helps else "off")
        if mode == "full" and not self._strip_folds:
            mode = "strip"  # of few ranks, or once the terminal is larger: nearly all were empty
        heat_map.display = mode != "off" and shown.total > 0 and field is not None
        hides_table = heat_map.display and mode == "full"
        if hides_table and table.has_focus:
            heat_map.focus(scroll_visible=False)
        elif not heat_map.display and heat_map.has_focus:
            table.focus(scroll_visible=False)
        table.display = not hides_table
        if not heat_map.display or field is None:
            return
        heat_map.styles.height = room if mode == "full" else strip
        found = self.ranks.distribution(field)
        cells = heat.cells(self.ranks.values(field), field, found, shown.passing)
        heat_map.show(cells, heat.title(field, found))
        if (key := table.cursor_key) is not None:
            heat_map.point_at(int(key))


def _attempt(run: RunView) -> Content:
    """Which attempt the ranks are of, and how that began or ended."""
    attempt = run.attempt
    if attempt is None:
        return Content()
    head = f"  attempt {attempt.number}"
    if attempt.ended_s is not None:
        text = attempt_end(attempt.reason or run.message, attempt.ended_s)
        return Content.styled(f"{head} {text}", "$warning" if attempt.reason else "$muted")
    if attempt.first_step is None and attempt.reported_s is not None:
        return Content.styled(f"{head} reports only, and no steps", "$muted")
    if attempt.first_step is None:
        return Content.styled(f"{head}: waiting for its first step", "$warning")
    how = "resumed at" if attempt.number > 1 else "from"
    return Content.styled(f"{head} {how} step {attempt.first_step:,}", "$muted")


def _count(shown: int, of: int, order: Order) -> str:
    ranks = plural(of, "rank")
    return f"{shown:,} of {ranks} with “{order.text}”" if order.text else ranks
