"""View 6: the running drill, the available faults, and the results of earlier drills."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import TypeAlias

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from cockpit.model.drill import DrillRecord
from cockpit.model.text import one_line
from cockpit.recorder.drills import DrillHistory
from cockpit.store.drill import DrillView
from cockpit.tui.keys import shown_key
from cockpit.tui.main.titles import entitle
from cockpit.tui.rows.sort import HEAD_LINES
from cockpit.tui.view_state import Target, ViewState
from cockpit.tui.views.drills import current_drill
from cockpit.tui.views.drills.catalog_rows import DAY, FAULT_COLUMNS, day_rows, fault_rows
from cockpit.tui.views.drills.history_rows import HISTORY_COLUMNS, Past, PastDrills
from cockpit.tui.views.drills.lines import StyledLines, about, of_day
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.widgets.bars.recovery import RecoveryBar
from cockpit.tui.widgets.few_lines import StyledLine
from cockpit.tui.widgets.table.table import LineTable
from cockpit.tui.widgets.text import Text

MOST_PROBES = {"-tall": 6, "-medium": 3}
"""By the height of the screen."""
MOST_KEPT = 200
"""Earlier drills of this machine that are shown: each is compared with all of its kind."""
LINGERS_S = 120.0
"""How long a drill that is over stays above the catalogue, unless it is closed before."""
CHECK_EVERY_S = 2.0
"""How often to check for drills of other cockpit processes."""
LEAST_TABLE = 4
"""Lines: the title, the columns' titles, and two rows."""
LEAST_BOTH, LEAST_ALL = 12, 15
"""Lines shared by the drill and the earlier drills; with the text on a row too."""
NONE_YET = "No drill yet. Select a fault above, and press enter to inject it."
FIRST_GOES_ON = "No drill has ended yet: the first one is running. Press {} to abort it."

FolderState: TypeAlias = tuple[int, frozenset[str]]
"""When the folder of drills was changed last, and the names in it."""


class DrillsView(SortedView):
    NAME = "drills"
    TABLES = ("catalogue", "history")
    SCOPED_CSS = False  # it uses the screen's size classes
    DEFAULT_CSS = """
    DrillsView .panel { border-top: solid $border-blurred; border-title-color: $foreground;
        border-title-style: bold; border-title-background: $surface; }
    DrillsView LineTable:focus { border-top: solid $border; }
    DrillsView #live { height: auto; display: none; }
    DrillsView #live > * { padding: 0 1; }
    DrillsView #catalogue { height: 1fr; }
    DrillsView #about { height: auto; max-height: 4; padding: 0 1; background: $panel; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._past = PastDrills()
        self.past: dict[str, Past] = {}
        self._kept: Sequence[DrillRecord] = ()
        self._ended = -1
        self._folder: FolderState | None = None
        self._asked_s = -math.inf
        self._reading = False
        self._put_away = ""
        """The drill whose panel was closed."""
        self._elsewhere = ""
        """Who else holds the drill lease of the cluster."""
        self._view_state: ViewState | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="live", classes="panel"):
            yield StyledLines(id="now")
            yield RecoveryBar(legend_lines=4)
            yield StyledLines(id="probe-lines")
        yield LineTable(FAULT_COLUMNS, id="catalogue", classes="panel")
        yield Text(id="about")
        yield LineTable(
            HISTORY_COLUMNS,
            id="history",
            classes="panel",
            empty=NONE_YET,
            newest_first=True,
        )

    def redraw(self, state: ViewState) -> None:
        self._view_state = state
        taken = self._live(state)
        self._catalogue(state)
        rows = self._history(state)
        if self.size.height:  # otherwise it is not laid out yet
            self._share(self.size.height - taken, rows)

    # -- its parts

    def _live(self, state: ViewState) -> int:
        """The panel of the drill; how many lines it takes."""
        panel = self.query_one("#live")
        view, mine = self._shown(state), self.cockpit.conducting
        day: list[StyledLine] = []
        if mine is not None and mine.message:
            day.append([(f"{mine.name}  ", "bold"), (mine.message, "muted")])
        elif mine is None and self._elsewhere:
            day.append(
                [("another user's drill is running: ", "warning"), (one_line(self._elsewhere), "")]
            )
        panel.display = view is not None or bool(day)
        if view is None:
            entitle(panel, "Game day" if mine is not None else "Drill")
            return self._fill(day) + 1 if day else 0
        found = current_drill.live(state.store, view, self.cockpit.readings(view.id))
        ends = f" · {shown_key('abort')} aborts" if mine is not None else ""
        ends = ends if found.going else f" · {shown_key('back')} closes"
        entitle(panel, f"Drill · {view.name} · {view.id}{ends}")
        now = current_drill.headline(found, state.now_s)
        if not found.going and not self.screen.has_class("-tall"):
            return 1 + self._fill([*day, *now[:1]], self._bar(found, state, 1))
        return 1 + self._fill(
            [*day, *now], self._bar(found, state), self._progress_lines(found, state)
        )

    def _fill(
        self, now: Sequence[StyledLine], bar_lines: int = 0, lines: Sequence[StyledLine] = ()
    ) -> int:
        """Fill the panel; how many lines that is."""
        self.query_one("#now", StyledLines).show(now)
        self.query_one(RecoveryBar).display = bar_lines > 0
        self.query_one("#probe-lines", StyledLines).show(lines)
        return len(now) + bar_lines + len(lines)

    def _bar(self, found: current_drill.Live, state: ViewState, most: int = 99) -> int:
        """The newest fault's phases; how many lines they take."""
        if found.last is None:
            return 0
        bar = self.query_one(RecoveryBar)
        bar.set_recovery(found.last, state.now_s, going=found.going)
        lines = min(most, bar.lines_for(max(0, self.size.width - 2)))
        bar.styles.height = lines
        return lines

    def _progress_lines(self, found: current_drill.Live, state: ViewState) -> list[StyledLine]:
        """The results of the probes, and the state of the run."""
        view, last = found.view, found.last
        lines = current_drill.probe_lines(view.probes, self._most_probes())
        if last is None:
            return lines
        run = state.store.runs.get(last.drill.run_id)
        if run is not None and not self.screen.has_class("-tiny"):
            until_s = view.record.ended_s if view.record is not None else state.now_s
            width = max(0, self.size.width - 2)
            lines += current_drill.curve_lines(run, last.drill.injected_s, until_s, width)
        return [*lines, current_drill.ray_state(run, over=not found.going)]

    def _shown(self, state: ViewState) -> DrillView | None:
        """The running drill, or the newest one for some time."""
        view = current_drill.going(state.store)
        if view is None and state.store.drilling:
            last = next(reversed(state.store.drilling.values()))
            ended_s = last.record.ended_s if last.record is not None else 0.0
            view = last if state.now_s - ended_s < LINGERS_S and last.id != self._put_away else None
        return view

    def _share(self, room: int, earlier: int) -> None:
        """The widgets below the drill: the faults first, then the earlier drills."""
        catalogue, history = self.query_one("#catalogue"), self.query_one("#history")
        before = catalogue.display, history.display
        small = self.screen.has_class("-short") or self.screen.has_class("-tiny")
        catalogue.display = room >= LEAST_TABLE
        history.display = room >= LEAST_BOTH and not self.screen.has_class("-tiny")
        self.query_one("#about").display = room >= LEAST_ALL and not small
        history.styles.height = max(LEAST_TABLE, min(max(1, earlier) + HEAD_LINES, room // 3))
        if before != (catalogue.display, history.display):
            self.call_after_refresh(self.refocus)

    def _most_probes(self) -> int:
        return next((n for name, n in MOST_PROBES.items() if self.screen.has_class(name)), 1)

    def _catalogue(self, state: ViewState) -> None:
        table = self.query_one("#catalogue", LineTable)
        backend = state.ref.backend if state.ref is not None else ""
        refused = self.cockpit.refusal("drill")
        faults = fault_rows(backend, self.cockpit.capabilities, refused)
        days = day_rows(refused)
        every = [*(row for _, _, row in faults), *(row for _, row in days)]
        self.show_rows(every, "Faults and game days")
        details = {row.key: about(fault, why) for fault, why, row in faults}
        details |= {row.key: of_day(day, refused) for day, row in days}
        text = details.get(table.cursor_key or "", Content())
        self.query_one("#about", Text).show(text)

    def _history(self, state: ViewState) -> int:
        """The earlier drills; how many are shown."""
        table = self.query_one("#history", LineTable)
        ended = sum(view.record is not None for view in state.store.drilling.values())
        if ended != self._ended:
            self._ended, self._folder, self._asked_s = ended, None, -math.inf
        now_s = time.monotonic()
        if not self._reading and now_s - self._asked_s >= CHECK_EVERY_S:
            self._asked_s, self._reading = now_s, True
            self._read()
        both = self._past.all(state.store, self._kept, state.now_s)
        self.past = {past.key: past for past, _ in both}
        found = [row for _, row in both]
        rows = self.show_rows(found, "Earlier drills", "history")
        going = current_drill.going(state.store) is not None
        table.set_empty(FIRST_GOES_ON.format(shown_key("abort")) if going else NONE_YET)
        return len(rows)

    @work(exit_on_error=False, name="earlier drills")
    async def _read(self) -> None:
        """Read the drills on this host again, since another cockpit may have added some."""
        connection = self.cockpit.connection
        try:
            if connection is None or connection.actions is None:
                return
            elsewhere = await self.cockpit.submit(connection.actions.drill_elsewhere())
            folder = await asyncio.to_thread(folder_state)
            found = None
            if folder != self._folder:
                found = await asyncio.to_thread(connection.actions.earlier_drills)
            if connection is not self.cockpit.connection:
                return  # the answers are about the cluster that was shown before
            self._elsewhere, self._folder = elsewhere, folder
            if found is not None:
                self._kept = sorted(found, key=lambda one: one.began_s)[-MOST_KEPT:]
        finally:
            self._reading = False

    # -- what is chosen

    def on_line_table_highlighted(self, message: LineTable.Highlighted) -> None:
        message.stop()
        if message.table.id == "catalogue" and self._view_state is not None:
            self._catalogue(self._view_state)

    async def on_line_table_selected(self, message: LineTable.Selected) -> None:
        message.stop()
        if message.table.id == "catalogue":
            await self.run_action("screen.drill")
            return
        if (chosen := self.past.get(message.key)) is not None:
            from cockpit.tui.views.drills.page import DrillScreen

            self.app.push_screen(DrillScreen(chosen))

    def target(self) -> Target | None:
        """A fault, a game day, or a drill that is over."""
        table = self.focused_table()
        key = table.cursor_key
        if key is None:
            return None
        if table.id != "catalogue":
            return Target("drill", key)
        return Target("day", key.removeprefix(DAY)) if key.startswith(DAY) else Target("fault", key)

    def back(self) -> bool:
        """Close the panel of a drill that is over; whether there was one."""
        view = self._shown(self._view_state) if self._view_state is not None else None
        if view is None or current_drill.is_going(view):
            return False
        self._put_away = view.id
        return True

    def forget(self) -> None:
        super().forget()
        self._past.forget()
        self._kept, self._ended, self._folder = (), -1, None
        self._put_away = self._elsewhere = ""
        self._view_state = None


def folder_state() -> FolderState:
    """Much cheaper than reading them, but it uses the file system: not from the UI."""
    folder = DrillHistory().directory
    try:
        return folder.stat().st_mtime_ns, frozenset(path.name for path in folder.iterdir())
    except OSError:
        return 0, frozenset()
