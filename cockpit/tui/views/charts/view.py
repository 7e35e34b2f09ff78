"""View 3: all curves of the run with one zoom and cursor, compared with other runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from textual.app import ComposeResult
from textual.containers import Grid
from textual.message import Message

from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.tui.keys import shown_key
from cockpit.tui.main.frame import Line
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.charts import scope_line
from cockpit.tui.views.charts.available_charts import LOSS, PLOTS, Plot, plots_of
from cockpit.tui.views.charts.curve_builder import Compared, CurveBuilder, marks_on, reach_of
from cockpit.tui.views.charts.curve_cache import begun_s, step_at, time_at
from cockpit.tui.views.charts.curves import end, marks_of, no_samples
from cockpit.tui.views.charts.panel import Panel
from cockpit.tui.views.charts.viewport import Reach, Viewport
from cockpit.tui.views.view import View
from cockpit.tui.widgets.chart.axis import Axis
from cockpit.tui.widgets.chart.marks import Mark

CHART_CELLS, CHART_ROWS = 58, 16
"""A chart is not smaller than this as long as the view is larger."""
MOST_COLUMNS, MOST_ROWS = 4, 3


class Shown(Struct, frozen=True):
    """The last drawn state, on which keys act."""

    run: RunView
    reach: Reach
    plots: Sequence[Plot]
    page: int


class ChartsView(View):
    NAME = "charts"
    DEFAULT_CSS = """
    ChartsView Grid { grid-gutter: 0 2; padding: 0 1; }
    """

    class Moved(Message):
        """The mouse has changed the visible range."""

    def __init__(self) -> None:
        super().__init__()
        self.viewport = Viewport()
        self.per_rank = False
        self.full = False
        self.compared_by_key: dict[str, Compared] = {}
        self.search = ""
        """Only charts whose title holds them are shown."""
        self.selected = LOSS.id
        self._curves = CurveBuilder()
        self._shown: Shown | None = None
        self._columns = 0

    def compose(self) -> ComposeResult:
        yield Line(id="scope")
        with Grid():
            yield Panel()

    def redraw(self, state: ViewState) -> None:
        run = current_run(state.store)
        runs = [*([run] if run else []), *(one.run for one in self.compared)]
        plots = [plot for plot in plots_of(runs) if self.search.lower() in plot.title.lower()]
        has_plots = bool(plots)
        if not plots and not self.search:
            plots = list(PLOTS[:3])
        if plots and self.selected not in [plot.id for plot in plots]:
            self.selected = plots[0].id
        at = next((n for n, plot in enumerate(plots) if plot.id == self.selected), 0)
        size = self._room(len(plots))
        page = at // size
        here = plots[page * size : (page + 1) * size]
        panels = self._panels(here)

        reach, marks, begun = None, list[Mark](), None
        if run is not None:
            reach = reach_of(run, self.compared, self.viewport, end(run, state.now_s))
            marks = marks_on(marks_of(state.store, run, checkpoints=True), run, self.viewport)
            begun = begun_s(run)
        self._shown = Shown(run, reach, plots, page) if run and reach else None
        empty = no_samples(state, run)
        for plot, panel in zip(here, panels, strict=False):
            curves = []
            if run is not None and reach is not None:
                if self.per_rank and not plot.reported and not plot.parts:
                    curves = self._curves.of_ranks(plot, run, self.viewport, state.now_s)
                else:
                    curves = self._curves.curves(plot, run, self.compared, self.viewport)
            panel.show(
                plot,
                curves,
                marks,
                self.viewport,
                reach,
                begun or 0.0,
                selected=len(plots) > 1 and plot.id == self.selected,
                empty=empty,
            )
        if self.search and not plots:
            panels[0].show(
                LOSS,
                [],
                [],
                self.viewport,
                None,
                0.0,
                selected=False,
                empty=f"No chart of that name. Press {shown_key('back')} to show all.",
            )
        pages = math.ceil(len(plots) / size)
        self.query_one("#scope", Line).show(
            scope_line.line(
                self.query_one("#scope", Line).size.width,
                run,
                self.viewport,
                reach,
                marks,
                page=(page + 1, pages) if has_plots and pages > 1 else None,
                ranks=self.per_rank,
                compared=[one.name for one in self.compared],
                text=self.search,
                begun=begun or 0.0,
            )
        )

    def _room(self, plots: int) -> int:
        """How many charts the view shows at once; sets the number of columns."""
        width, height = self.size.width - 2, self.size.height - 1
        columns = min(max(1, width // CHART_CELLS), MOST_COLUMNS)
        rows = min(max(1, height // CHART_ROWS), MOST_ROWS)
        if self.full:
            columns = rows = 1
        shown = max(1, min(plots, columns * rows))
        self._columns = min(columns, math.ceil(shown / rows))
        return columns * rows

    def _panels(self, plots: Sequence[Plot]) -> list[Panel]:
        """As many as there are plots, one at least; the others are hidden."""
        grid = self.query_one(Grid)
        panels = list(grid.query(Panel))
        for _ in range(len(plots) - len(panels)):
            panels.append(Panel())
            grid.mount(panels[-1])
        for number, panel in enumerate(panels):
            panel.display = number < max(1, len(plots))
        if grid.styles.grid_size_columns != self._columns:
            grid.styles.grid_size_columns = self._columns
        return panels

    def forget(self) -> None:
        self.viewport, self.compared_by_key, self.search = Viewport(), {}, ""
        self._shown = None
        self._curves.forget()

    # -- the window

    def zoom(self, factor: float, about: float | None = None) -> None:
        """Below 1 nearer, above wider."""
        if self._shown is not None:
            self.viewport = self.viewport.zoomed(factor, self._shown.reach, about)

    def pan(self, share: float) -> None:
        """By that share of what is shown; negative is earlier."""
        if self._shown is not None:
            self.viewport = self.viewport.panned(share, self._shown.reach)

    def show_all(self) -> None:
        self.viewport = self.viewport.whole()

    def follow(self) -> None:
        self.viewport = self.viewport.following()

    # -- the cursor

    def move_cursor(self, cells: int) -> None:
        if self._shown is None:
            return
        stretch = next(
            (p.stretch for p in self.query(Panel) if p.display and p.stretch is not None), None
        )
        size = stretch.cell_size if stretch else 0.0
        self.viewport = self.viewport.moved(cells, size, self._shown.reach)

    def cursor_to_begin(self) -> None:
        if self._shown is not None:
            start, _ = self.viewport.shown(self._shown.reach)
            self.viewport = replace(self.viewport, cursor=start)

    def back(self) -> bool:
        """Out of what was opened last: the cursor, the chart alone; whether there was one."""
        if self.viewport.cursor is not None:
            self.viewport = replace(self.viewport, cursor=None)
        elif self.full:
            self.full = False
        else:
            return False
        return True

    # -- how curves are drawn

    def smooth(self) -> None:
        self.viewport = self.viewport.smoother()

    def toggle_log(self) -> None:
        self.viewport = replace(self.viewport, log=not self.viewport.log)

    def toggle_ranks(self) -> None:
        self.per_rank = not self.per_rank

    def next_axis(self) -> None:
        """By time of day, by time since the start, by step; the visible range is kept."""
        viewport, axis = self.viewport, self.viewport.next_axis
        if (viewport.axis is Axis.STEP) == (axis is Axis.STEP) or self._shown is None:
            self.viewport = replace(viewport, axis=axis)
            return
        run = self._shown.run
        convert = step_at if axis is Axis.STEP else time_at
        cursor = None if viewport.cursor is None else convert(run, viewport.cursor)
        ends = [convert(run, place) for place in viewport.shown(self._shown.reach)]
        viewport = replace(viewport, axis=axis, cursor=cursor)
        start, stop = ends[0], ends[1]
        if viewport.span is None or start is None or stop is None or stop <= start:
            self.viewport = viewport.whole()
        else:
            self.viewport = replace(
                viewport, span=stop - start, end=None if viewport.end is None else stop
            )

    @property
    def compared(self) -> list[Compared]:
        return list(self.compared_by_key.values())

    def compare(self, compared: Mapping[str, Compared]) -> None:
        """Lay these, by what chose them, over the run; none to stop."""
        self.compared_by_key = dict(compared)

    # -- which charts

    def toggle_full(self) -> None:
        """The selected chart alone, or all again."""
        self.full = not self.full

    def select(self, by: int) -> None:
        """The next chart, the one before."""
        if self._shown is not None and self._shown.plots:
            names = [plot.id for plot in self._shown.plots]
            at = names.index(self.selected) if self.selected in names else 0
            self.selected = names[(at + by) % len(names)]

    def turn(self, by: int) -> None:
        """The next charts, those before."""
        if self._shown is not None and self._shown.plots:
            plots = self._shown.plots
            size = self._room(len(plots))
            pages = math.ceil(len(plots) / size)
            self.selected = plots[(self._shown.page + by) % pages * size].id

    def filter(self, text: str) -> None:
        self.search = text

    # -- the mouse

    def on_panel_pointed(self, message: Panel.Pointed) -> None:
        message.stop()
        if message.panel.plot is not None:
            self.selected = message.panel.plot.id
        self.viewport = replace(self.viewport, cursor=message.place)
        self.post_message(self.Moved())

    def on_panel_scrolled(self, message: Panel.Scrolled) -> None:
        message.stop()
        if message.share:
            self.pan(message.share)
        else:
            self.zoom(message.factor, message.place)
        self.post_message(self.Moved())

    def on_panel_opened(self, message: Panel.Opened) -> None:
        message.stop()
        if message.panel.plot is not None:
            self.selected = message.panel.plot.id
        self.toggle_full()
        self.post_message(self.Moved())
