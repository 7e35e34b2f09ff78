"""View 0: every cluster of every context; enter opens one."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content

from cockpit import format
from cockpit.model.cluster import ClusterRef
from cockpit.tui.main.titles import entitle
from cockpit.tui.rows.sort import heading
from cockpit.tui.rows.text import waiting
from cockpit.tui.view_state import Target, ViewState
from cockpit.tui.views.fleet.rows import FLEET_COLUMNS, fleet_rows, totals
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.widgets.table.table import LineTable, Row
from cockpit.tui.widgets.text import Text


class FleetView(SortedView):
    NAME = "fleet"
    TABLES = ("fleet",)
    SCOPED_CSS = False  # it uses the screen's size classes
    DEFAULT_CSS = """
    FleetView LineTable { height: 1fr; border-top: solid $border;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface;
        border-subtitle-color: $muted; border-subtitle-background: $surface; }
    FleetView #about { height: auto; max-height: 4; padding: 0 1; background: $panel; }
    .-tiny FleetView #about { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.context = self.namespace = ""
        """Only the clusters of these, when they are set."""
        self._met = False
        """Whether the cursor was on the current cluster."""
        self._refs: dict[str, ClusterRef | None] = {}

    def compose(self) -> ComposeResult:
        yield LineTable(FLEET_COLUMNS, id="fleet")
        yield Text(id="about")

    def redraw(self, state: ViewState) -> None:
        table = self.query_one(LineTable)
        if state.fleet is None:
            entitle(table, "Fleet")
            table.set_empty(
                "This cluster is not on Kubernetes. To list others, run: cockpit clusters"
            )
            table.set_rows(())
            return
        table.set_empty(waiting("No cluster yet: waiting for the first context to answer."))
        here = state.ref if state.chosen else None
        favorites = self.cockpit.memory.now.favorites
        found = fleet_rows(state.fleet, state.now_s, here, favorites)
        self._refs = {item.row.key: item.ref for item in found}
        rows = [item.row for item in found if self._wanted(item.row)]
        shown = self.show_rows(rows)
        entitle(table, self._title(state, len(shown), len(rows)))
        if not self._met and here is not None:
            self._met = table.move_to(str(here))
        self._set_text()

    def on_line_table_highlighted(self) -> None:
        self._set_text()

    def _set_text(self) -> None:
        """The unabbreviated location and problem, which the table may have cut."""
        table = self.query_one(LineTable)
        row = next((row for row in table.rows if row.key == table.cursor_key), None)
        self.query_one("#about", Text).show(_about(row) if row else "")

    def narrow(self, context: str, namespace: str) -> None:
        """Only the clusters there; an empty argument selects all."""
        self.context, self.namespace = context, namespace

    def chosen(self) -> ClusterRef | None:
        """The cluster under the cursor; None on a context that has none to show."""
        return self._refs.get(self.query_one(LineTable).cursor_key or "")

    def target(self) -> Target | None:
        ref = self.chosen()
        return None if ref is None else Target("cluster", str(ref))

    def filter(self, text: str) -> None:
        if not text:
            self.narrow("", "")
        super().filter(text)

    def sort_next(self) -> None:
        columns = self.query_one(LineTable).visible_columns
        self.order.next([key for key in columns if key != "here"])

    def _wanted(self, row: Row) -> bool:
        context, namespace = row.cells[1].text, row.cells[2].text
        return (not self.context or context == self.context) and (
            not self.namespace or namespace == self.namespace
        )

    def _title(self, state: ViewState, shown: int, of: int) -> str:
        title = "Fleet" if state.chosen else "Fleet · choose a cluster"
        where = " / ".join(text for text in (self.context, self.namespace) if text)
        if self.order.text:
            return heading(title, shown, of, self.order)
        if where:
            return f"{title} · only {where} (esc shows all)"
        if not state.fleet:
            return title
        room = (self.size.width or self.app.size.width) - len(f"─{title} · ─")
        return f"{title} · {totals(state.fleet, room)}"

    def forget(self) -> None:
        self._met = False


def _about(row: Row) -> Content:
    place = [cell.text for cell in row.cells[1:4] if cell.text not in ("", format.DASH)]
    health, message = row.cells[4], row.cells[-1]
    text = Content.assemble(Content.styled(" / ".join(place), "bold"))
    if health.text != format.DASH:
        text += Content.styled(f"  {health.text}", f"${health.style}" if health.style else "")
    return text + Content.styled(f"  {message.text}", "$muted") if message.text else text
