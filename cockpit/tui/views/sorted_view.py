"""A view of tables that the user sorts and filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cockpit.tui.keys import shown_key
from cockpit.tui.main.titles import entitle
from cockpit.tui.rows.sort import Order, heading
from cockpit.tui.view_state import Target, ViewState
from cockpit.tui.views.view import View
from cockpit.tui.widgets.table.table import LineTable, Row


class SortedView(View):
    TABLES: ClassVar[tuple[str, ...]] = ()
    """The ids of its tables. Keys work on the one with the focus, or the last focus."""
    KIND: ClassVar[str] = ""
    """The kind of a row in the first table, as in `Target`."""

    def __init__(self) -> None:
        super().__init__()
        self.orders = {name: Order() for name in self.TABLES}

    def draw(self, state: ViewState) -> None:
        chosen = self.cockpit.memory.now.columns
        for name in self.TABLES:
            self.table(name).choose(chosen.get(f"{self.NAME}/{name}", ()))
        super().draw(state)
        for name, order in self.orders.items():
            hint = f"No row contains “{order.text}”. Press {shown_key('back')} to show all rows."
            self.table(name).set_hint(hint if order.text else "")

    @property
    def order(self) -> Order:
        """Of the first table."""
        return self.orders[self.TABLES[0]]

    def table(self, name: str = "") -> LineTable:
        """The table of that id; the first without one."""
        return self.query_one(f"#{name or self.TABLES[0]}", LineTable)

    def focused_table(self) -> LineTable:
        pane = self.pane
        return pane if isinstance(pane, LineTable) and pane.display else self.table()

    def show_rows(self, rows: Sequence[Row], title: str = "", name: str = "") -> list[Row]:
        """Show the rows that pass the filter, sorted; the title counts them."""
        table, order = self.table(name), self.orders[name or self.TABLES[0]]
        shown = order.apply(rows, table.columns)
        table.set_sort(order.by, order.down)
        table.set_rows(shown)
        if title:
            entitle(table, heading(title, len(shown), len(rows), order))
        return shown

    def on_line_table_header_clicked(self, message: LineTable.HeaderClicked) -> None:
        message.stop()
        self.orders[message.table.id or ""].choose(message.key)
        self.draw(self.cockpit.view_state())

    def target(self) -> Target | None:
        key = self.table().cursor_key
        return None if key is None else Target(self.KIND, key)

    def filter(self, text: str) -> None:
        if not text:
            for order in self.orders.values():
                order.text = ""
        self.orders[self.focused_table().id or ""].text = text

    def sort_next(self) -> None:
        table = self.focused_table()
        self.orders[table.id or ""].next(table.visible_columns)

    def reverse(self) -> None:
        order = self.orders[self.focused_table().id or ""]
        order.down = not order.down

    def forget(self) -> None:
        self.orders = {name: Order() for name in self.TABLES}
        for table in self.query(LineTable):
            table.forget()
