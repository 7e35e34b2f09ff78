"""Filtering and sorting of rows, the same in every table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from cockpit.tui.widgets.table.table import Column, Row

SortKey: TypeAlias = tuple[int, float, str]
"""Numbers first, then text, then unknown values."""

HEAD_LINES = 3
"""The size of a table without its rows: the border with its title, the columns' titles, and
padding."""

_NUMBER = re.compile(r"^-?\d[\d,]*(\.\d+)?(e-?\d+)?")
_SCALE = {
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    "ms": 1e-3, "µs": 1e-6, "m": 60.0, "h": 3600.0, "d": 86_400.0, "k": 1e3, "M": 1e6, "G": 1e9,
}  # fmt: skip


class Order(Struct):
    """The rows and their order. `by` is a column's key; empty: unsorted."""

    by: str = ""
    down: bool = False
    text: str = ""

    def next(self, columns: Sequence[str]) -> None:
        """Sort by the next visible column; after the last, unsorted."""
        keys = ["", *columns]
        at = keys.index(self.by) if self.by in keys else 0
        self.by = keys[(at + 1) % len(keys)]

    def choose(self, column: str) -> None:
        """Sort by that column; if it is already, reverse the order."""
        self.by, self.down = column, column == self.by and not self.down

    def apply(self, rows: Sequence[Row], columns: Sequence[Column]) -> list[Row]:
        found = list(rows)
        if self.text:
            wanted = self.text.casefold()
            found = [
                row for row in found if any(wanted in cell.text.casefold() for cell in row.cells)
            ]
        at = next((n for n, column in enumerate(columns) if column.key == self.by), None)
        if at is not None:
            found.sort(key=lambda row: _key(row.cells[at].text), reverse=self.down)
        elif self.down:
            found.reverse()
        return found


def sort_key(value: float | str | None) -> SortKey:
    """Of a value that is at hand; `Order.apply` reads its keys from the cells' text."""
    if value is None or value == "":
        return 2, 0.0, ""
    return (1, 0.0, value.casefold()) if isinstance(value, str) else (0, float(value), "")


def _key(text: str) -> SortKey:
    """Numbers by value regardless of their unit, then text, then unknown values."""
    match = _NUMBER.match(text)
    if match is None:
        return (2 if text in ("", "–") else 1, 0.0, text.casefold())
    unit = text[match.end() :].split()
    scale = _SCALE.get(unit[0], 1.0) if unit else 1.0
    return (0, float(match.group().replace(",", "")) * scale, text)


def heading(what: str, shown: int, of: int, order: Order) -> str:
    """A table's title: how many there are, and how many of them pass the filter."""
    return f"{what} · {shown:,} of {of:,} with “{order.text}”" if order.text else f"{what} · {of:,}"
