"""View 4: pods, and below them what happened."""

from __future__ import annotations

from textual.app import ComposeResult

from cockpit.tui.look import Look, Target
from cockpit.tui.rows.events import EVENT_COLUMNS, event_rows
from cockpit.tui.rows.pods import POD_COLUMNS, pod_rows
from cockpit.tui.screens.tables import HEAD_LINES, Order, heading
from cockpit.tui.screens.view import View
from cockpit.tui.widgets.table import LineTable


class PodsView(View):
    NAME = "pods"
    SCOPED_CSS = False  # it speaks of the screen's size classes
    DEFAULT_CSS = """
    PodsView LineTable { border-top: solid $border-blurred; border-title-color: $foreground;
        border-title-style: bold; border-title-background: $surface; }
    PodsView LineTable:focus { border-top: solid $border; }
    PodsView #pods { max-height: 60%; }
    PodsView #events { height: 1fr; }
    .-tiny PodsView #pods { max-height: 100%; }
    .-tiny PodsView #events { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.pods, self.events = Order(), Order()

    def compose(self) -> ComposeResult:
        yield LineTable(POD_COLUMNS, id="pods", empty="No pods yet: waiting for the cluster.")
        yield LineTable(
            EVENT_COLUMNS, id="events", empty="Nothing has happened yet.", newest_first=True
        )

    def redraw(self, look: Look) -> None:
        pods, events = self._tables()
        found = pod_rows(look.store, look.now_s)
        shown = self.pods.apply(found, POD_COLUMNS)
        pods.border_title = heading("Pods", len(shown), len(found), self.pods)
        pods.set_sort(self.pods.by, self.pods.down)
        pods.set_rows(shown)
        pods.styles.height = max(5, len(shown)) + HEAD_LINES
        lines = event_rows(look.store)
        some = self.events.apply(lines, EVENT_COLUMNS)
        events.border_title = heading("Events", len(some), len(lines), self.events)
        events.set_sort(self.events.by, self.events.down)
        events.set_rows(some)

    def target(self) -> Target | None:
        key = self._tables()[0].cursor_key
        return None if key is None else Target("pod", key)

    def filter(self, text: str) -> None:
        if not text:
            self.pods.text = self.events.text = ""
        self._order.text = text

    def sort_next(self) -> None:
        pods, events = self._tables()
        table = events if self._order is self.events else pods
        self._order.next(table.visible_columns)

    def reverse(self) -> None:
        self._order.down = not self._order.down

    @property
    def _order(self) -> Order:
        """Of the table that has, or had, the focus."""
        return self.events if self.pane is self._tables()[1] else self.pods

    def _tables(self) -> tuple[LineTable, LineTable]:
        return self.query_one("#pods", LineTable), self.query_one("#events", LineTable)
