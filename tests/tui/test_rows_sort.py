from __future__ import annotations

import pytest

from cockpit.tui.rows.sort import Order
from cockpit.tui.widgets.table.table import Cell, Column, Row


def in_order(*texts: str) -> list[str]:
    rows = [Row(text, (Cell(text),)) for text in texts]
    return [row.key for row in Order(by="x").apply(rows, [Column("x", "X")])]


@pytest.mark.parametrize("text", [",", ",,5", "-,5", "-"])
def test_cell_without_a_first_digit_is_sorted_as_text(text: str) -> None:
    assert in_order("–", "zero", text, "7") == ["7", text, "zero", "–"]


def test_thousands_and_units_are_sorted_by_value() -> None:
    assert in_order("1,200", "2 k", "900 ms", "-3.5") == ["-3.5", "900 ms", "1,200", "2 k"]
