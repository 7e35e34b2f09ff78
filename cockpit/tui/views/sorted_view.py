"""A view whose one table the user sorts and filters."""

from __future__ import annotations

from typing import ClassVar

from cockpit.tui.rows.sort import Order
from cockpit.tui.view_state import Target
from cockpit.tui.views.view import View
from cockpit.tui.widgets.table.table import LineTable


class OrderedView(View):
    """`KIND` is what a row is, as a `Target` has it; `order` is the user's."""

    KIND: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self.order = Order()

    def target(self) -> Target | None:
        key = self.query_one(LineTable).cursor_key
        return None if key is None else Target(self.KIND, key)

    def filter(self, text: str) -> None:
        self.order.text = text

    def sort_next(self) -> None:
        self.order.next(self.query_one(LineTable).visible_columns)

    def reverse(self) -> None:
        self.order.down = not self.order.down

    def forget(self) -> None:
        self.order = Order()
        self.query_one(LineTable).forget()
