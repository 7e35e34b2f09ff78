"""How the columns of a table share its width. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cockpit.tui.terminal.cells import Align, Cut, width_of

WIDE_GAP = 2
NARROW_GAP = 1
NARROWEST, LEAST_COLUMNS = 60, 2
"""In fewer cells, columns are hidden from the right before all are cut until none can be read."""


class Column(Struct, frozen=True):
    """One column of a table. Without `width` it is as wide as its widest cell so far.

    `min_width` is the width to which it may be cut; without it, it is cut only as a last resort.
    `grow` is its share of remaining space. As with Kubernetes' printer columns, priority 0 is
    always shown, and without room the highest number is hidden first.
    """

    key: str
    title: str
    width: int | None = None
    min_width: int | None = None
    align: Align = "left"
    grow: int = 0
    priority: int = 0
    cut: Cut = "end"
    firm: bool = False
    """Whether it is cut down only when the others have been."""

    @property
    def least(self) -> int:
        """The width that it needs regardless of its cells."""
        return self.width or max(self.min_width or 0, width_of(self.title) + 1, 3)


class Place(Struct, frozen=True):
    """The cells in which a column is drawn."""

    column: Column
    index: int
    """Which cell of a row it shows."""
    x: int
    width: int


def lay_out(
    columns: Sequence[Column], widest: Sequence[int], room: int, chosen: Sequence[str] = ()
) -> tuple[Place, ...]:
    """Share `room` cells; `widest` is the width of each column's widest cell.

    `chosen`: the keys of the columns that the user wants, in their order; without room the last one
    is hidden first. Without any, or if the table has none of them, all columns by their priority.
    """
    wanted = [
        column.width or max(cells, column.least)
        for column, cells in zip(columns, widest, strict=True)
    ]
    index = {column.key: i for i, column in enumerate(columns)}
    shown = [index[key] for key in chosen if key in index]
    rank = {i: place for place, i in enumerate(shown)} or {
        i: column.priority for i, column in enumerate(columns)
    }
    shown = shown or list(range(len(columns)))

    def spare(gap: int) -> int:
        return room - sum(wanted[i] for i in shown) - gap * (len(shown) - 1)

    gap = WIDE_GAP if spare(WIDE_GAP) >= 0 else NARROW_GAP
    while spare(gap) < 0:
        soft = [
            i for i in shown if (least := columns[i].min_width) is not None and wanted[i] > least
        ]
        if sum(wanted[i] - (columns[i].min_width or 0) for i in soft) >= -spare(gap):
            floors = [column.min_width or 0 for column in columns]
            others = [i for i in soft if not columns[i].firm]
            _shrink(wanted, others, floors, -spare(gap))
            _shrink(wanted, soft, floors, -spare(gap))
            break
        optional = [i for i in shown if rank[i] > 0]
        if not optional and len(shown) > LEAST_COLUMNS and room < NARROWEST:
            shown.pop()
            continue
        if not optional:
            floors = [column.min_width or 1 for column in columns]
            _shrink(wanted, soft, floors, -spare(gap))
            _shrink(wanted, shown, [1] * len(columns), -spare(gap))
            break
        shown.remove(max(optional, key=lambda i: (rank[i], i)))
    if (left := spare(gap)) > 0:
        if gap == NARROW_GAP and left >= len(shown) - 1:
            gap = WIDE_GAP
        _grow(wanted, [i for i in shown if columns[i].grow], columns, spare(gap))
    places, x = [], 0
    for i in shown:
        places.append(Place(columns[i], i, x, wanted[i]))
        x += wanted[i] + gap
    return tuple(places)


def _shrink(widths: list[int], which: Sequence[int], floors: Sequence[int], by: int) -> None:
    """Take the cells from the widest first, so that no column is starved for another."""
    while by > 0:
        rest = [i for i in which if widths[i] > floors[i]]
        if not rest:
            return
        widths[max(rest, key=lambda i: widths[i])] -= 1
        by -= 1


def _grow(widths: list[int], which: Sequence[int], columns: Sequence[Column], by: int) -> None:
    total = sum(columns[i].grow for i in which)
    for n, i in enumerate(which):
        last = n == len(which) - 1
        share = by if last else by * columns[i].grow // total
        widths[i] += share
        by -= share
        total -= columns[i].grow
