"""The scrollbar of a long table moves only when it looks different."""

from __future__ import annotations

import pytest
from textual.scrollbar import ScrollBarRender

from cockpit.tui.widgets.table.columns import Column
from cockpit.tui.widgets.table.row_lines import Cell, Row
from cockpit.tui.widgets.table.table import LineTable
from tests.tui.stage import Stage


@pytest.mark.parametrize("count", [12, 200, 5_000])
async def test_scrollbar_looks_as_at_the_exact_line(count: int) -> None:
    table = LineTable((Column("name", "NAME"),))
    async with Stage(table).run_test(size=(40, 12)) as pilot:
        table.set_rows([Row(str(i), (Cell(f"row {i}"),)) for i in range(count)])
        await pilot.pause()
        bar, positions = table.vertical_scrollbar, set[float]()
        for line in range(int(table.max_scroll_y) + 1):
            table.scroll_to(y=line, animate=False, force=True)
            positions.add(bar.position)
            drawn, exact = (
                ScrollBarRender.render_bar(
                    bar.size.height, bar.window_virtual_size, bar.window_size, position
                )
                for position in (bar.position, line)
            )
            assert list(drawn.segments) == list(exact.segments), (line, bar.position)
        assert len(positions) <= 8 * bar.size.height + 1
