"""The columns of a table as fields of its lines, which sort and filter them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from cockpit.tui.rows import filter as condition
from cockpit.tui.rows.filter import Value
from cockpit.tui.rows.sort import Order
from cockpit.tui.widgets.table.table import Cell, Column, LazyRows, Row

T = TypeVar("T")


class Field(Struct, Generic[T], frozen=True):
    """`value` is what it sorts by and is filtered by."""

    column: Column
    value: Callable[[T], Value]
    cell: Callable[[T], Cell]
    names: tuple[str, ...] = ()
    """Its names in a filter, besides the key of its column."""


def chosen(
    lines: Sequence[T],
    fields: Sequence[Field[T]],
    order: Order,
    *,
    text: Callable[[T], str],
    marks: Collection[str] = (),
    is_marked: Callable[[T, str], bool] = lambda line, mark: False,
) -> tuple[list[T], str]:
    """The lines that pass the filter, sorted; and what of the filter could not be parsed."""
    by_key = {field.column.key: field for field in fields}
    names = {name: key for key, field in by_key.items() for name in (key, *field.names)}
    wanted = condition.parsed(order.text, names, marks)
    shown = [
        line
        for line in lines
        if wanted.holds(
            lambda key, line=line: by_key[key].value(line),  # type: ignore[misc]
            lambda mark, line=line: is_marked(line, mark),  # type: ignore[misc]
            lambda line=line: text(line),  # type: ignore[misc]
        )
    ]
    field = by_key.get(order.by)
    shown = condition.ordered(shown, field.value if field else None, down=order.down)
    return shown, wanted.problem


def lazy_rows(
    lines: Sequence[T],
    fields: Sequence[Field[T]],
    key: Callable[[T], str],
    widest: Mapping[int, int] = {},
) -> LazyRows:
    """Rows whose cells are made when they are shown. `widest`: cells, by number of a column."""
    return LazyRows(
        [key(line) for line in lines],
        lambda at: Row(key(lines[at]), tuple(field.cell(lines[at]) for field in fields)),
        widest,
    )
