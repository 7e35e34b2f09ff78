from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.segment import Segment
from textual.events import MouseScrollDown, MouseScrollUp
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from cockpit.tui.terminal.symbols import Symbols, use_symbols
from cockpit.tui.widgets.table.columns import Column, Place, lay_out
from cockpit.tui.widgets.table.table import Cell, LineTable, Row
from tests.tui.stage import Stage, lines, watch_repaints

COLUMNS = (
    Column("pod", "Pod", min_width=12, grow=1),
    Column("phase", "Phase"),
    Column("cpu", "CPU", align="right"),
    Column("ip", "IP", priority=1),
    Column("why", "Reason", min_width=10, grow=1, priority=2),
)


def row(name: str, cpu: int = 0, phase: str = "Running") -> Row:
    style = "good" if phase == "Running" else "bold bad"
    return Row(
        name,
        (
            Cell(name),
            Cell(phase, style),
            Cell(f"{cpu} %"),
            Cell("10.0.0.1", "muted"),
            Cell("" if phase == "Running" else "OOMKilled: used more than its limit", "warning"),
        ),
    )


def some(count: int) -> list[Row]:
    return [row(f"worker-{n:03d}", n) for n in range(count)]


def keys(
    stage: Stage,
    kind: type[LineTable.Highlighted | LineTable.Selected | LineTable.HeaderClicked],
) -> list[str]:
    return [message.key for message in stage.said if isinstance(message, kind)]


async def test_a_change_of_one_cell_repaints_that_cell_alone() -> None:
    table = LineTable(COLUMNS)
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        rows = some(30)
        table.set_rows(rows)
        await pilot.pause()
        seen = watch_repaints(table)
        rows[4] = row("worker-004", 99)
        table.set_rows(rows)
        await pilot.pause()
        assert len(seen) == 1
        assert (seen[0].y, seen[0].height) == (5, 1)
        assert seen[0].width <= 5
        assert "99 %" in lines(table)[5]


@pytest.mark.parametrize("css", ["", "border-top: solid red;", "padding: 1 2;", "opacity: 50%;"])
@pytest.mark.parametrize("count", [0, 3, 40])
async def test_lines_are_those_that_textual_would_draw(css: str, count: int) -> None:
    class Styled(LineTable):
        DEFAULT_CSS = f"Styled {{ {css} }}"

    table = Styled(COLUMNS, empty="No pods.", zebra=True)
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(some(count))
        for key in ("j", "down", "G", "g", "tab", "pagedown"):
            await pilot.press(key)
            await pilot.pause()
            for crop in (Region(0, 0, 80, 12), Region(0, 4, 80, 3), Region(10, 2, 20, 5)):
                mine = table.render_lines(crop)
                table._styles_cache.clear()
                assert _shown(mine) == _shown(Widget.render_lines(table, crop)), (key, crop)


def _shown(strips: list[Strip]) -> list[list[Segment]]:
    """Without the column of the scrollbar, which is drawn over it."""
    return [list(Segment.simplify(strip.crop(0, 79))) for strip in strips]


async def test_hidden_or_unchanged_rows_are_not_repainted() -> None:
    table = LineTable(COLUMNS)
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(some(30))
        await pilot.pause()
        seen = watch_repaints(table)
        table.set_rows(some(30))
        rows = some(30)
        rows[29] = row("worker-029", 1)
        table.set_rows(rows)
        await pilot.pause()
        assert seen == []


async def test_the_cursor_stays_on_its_row_when_rows_move() -> None:
    table = LineTable(COLUMNS)
    stage = Stage(table)
    async with stage.run_test(size=(80, 12)) as pilot:
        table.set_rows(some(30))
        assert table.move_to("worker-003")
        assert not table.move_to("nobody")
        await pilot.pause()
        table.set_rows(some(30)[::-1])
        await pilot.pause()
        assert table.cursor_key == "worker-003"
        assert any("worker-003" in line for line in lines(table))
        assert keys(stage, LineTable.Highlighted) == ["worker-000", "worker-003"]


async def test_the_cursor_goes_to_a_neighbour_when_its_row_goes() -> None:
    table = LineTable(COLUMNS)
    stage = Stage(table)
    async with stage.run_test(size=(80, 12)) as pilot:
        table.set_rows(some(3))
        table.move_to("worker-002")
        table.set_rows(some(2))
        await pilot.pause()
        assert table.cursor_key == "worker-001"
        table.set_rows(())
        assert table.cursor_key is None
        await pilot.pause()
        assert keys(stage, LineTable.Highlighted)[-1] == "worker-001"


@pytest.mark.parametrize(
    ("pressed", "key"),
    [
        (["j"], "worker-001"),
        (["down", "down", "k"], "worker-001"),
        (["G"], "worker-029"),
        (["end", "g"], "worker-000"),
        (["end", "up", "home", "up"], "worker-000"),
        (["pagedown"], "worker-010"),
        (["pagedown", "pageup"], "worker-000"),
    ],
)
async def test_keys_move_the_cursor(pressed: list[str], key: str) -> None:
    table = LineTable(COLUMNS)
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(some(30))
        table.focus()
        await pilot.press(*pressed)
        await pilot.pause()
        assert table.cursor_key == key
        assert any(key in line for line in lines(table))


async def test_enter_and_a_double_click_select() -> None:
    table = LineTable(COLUMNS)
    stage = Stage(table)
    async with stage.run_test(size=(80, 12)) as pilot:
        table.focus()
        await pilot.press("enter")
        table.set_rows(some(30))
        await pilot.press("j", "enter")
        await pilot.click(table, offset=(4, 5))
        assert table.cursor_key == "worker-004"
        await pilot.double_click(table, offset=(4, 6))
        await pilot.click(table, offset=(4, 0))
        await pilot.pause()
        assert keys(stage, LineTable.Selected) == ["worker-001", "worker-005"]
        assert stage.said[-1].control is table


@pytest.mark.parametrize("border", [0, 1])
async def test_click_on_a_header_names_the_column_and_on_a_row_selects_it(border: int) -> None:
    table = LineTable((Column("mark", "", width=1), *COLUMNS))
    stage = Stage(table)
    async with stage.run_test(size=(80, 12)) as pilot:
        if border:
            table.styles.border_top = ("solid", "white")
        table.set_rows(some(3))
        await pilot.pause()
        header = lines(table)[0]
        for title in ("Phase", "CPU"):
            await pilot.click(table, offset=(header.index(title), border))
        await pilot.click(table, offset=(0, border))  # a column without a title
        await pilot.click(table, offset=(4, border + 2))
        assert keys(stage, LineTable.HeaderClicked) == ["phase", "cpu"]
        assert table.cursor_key == "worker-001"


async def test_the_wheel_scrolls_and_leaves_the_cursor() -> None:
    table = LineTable(COLUMNS)
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(some(30))
        await pilot.pause()
        await pilot._post_mouse_events([MouseScrollDown], table, offset=(4, 4))
        await pilot.pause()
        assert "worker-003" in lines(table)[1]
        assert table.cursor_key == "worker-000"
        await pilot._post_mouse_events([MouseScrollUp], table, offset=(4, 4))
        await pilot.pause()
        assert "worker-000" in lines(table)[1]


async def test_a_narrow_table_hides_what_matters_least() -> None:
    table = LineTable(COLUMNS)
    async with Stage(table).run_test(size=(30, 12)) as pilot:
        table.set_rows(some(3))
        await pilot.pause()
        assert list(table.visible_columns) == ["pod", "phase", "cpu"]
        await pilot.resize_terminal(160, 12)
        await pilot.pause()
        assert list(table.visible_columns) == ["pod", "phase", "cpu", "ip", "why"]


async def test_visible_columns_are_those_of_the_width_that_a_layout_has_set() -> None:
    table = LineTable(COLUMNS)
    async with Stage(table).run_test(size=(160, 12)) as pilot:
        table.set_rows(some(3))
        await pilot.pause()
        table.styles.width = 30
        table.screen._clear_arrangement_cache()
        table.screen._refresh_layout()  # the table has its `Resize` in its queue now
        assert table.size.width == 30
        assert list(table.visible_columns) == ["pod", "phase", "cpu"]


async def test_columns_do_not_become_narrower_as_their_numbers_do() -> None:
    table = LineTable(COLUMNS[1:3])
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        table.set_rows([Row("a", (Cell("Running"), Cell("1,000,000")))])
        await pilot.pause()
        before = lines(table)[0]
        table.set_rows([Row("a", (Cell("Running"), Cell("1")))])
        await pilot.pause()
        assert lines(table)[0] == before
        assert lines(table)[1].endswith("        1")


async def test_the_header_marks_what_is_sorted_by() -> None:
    table = LineTable(COLUMNS)
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(some(3))
        table.set_sort("cpu", True)
        await pilot.pause()
        assert "CPU▼" in lines(table)[0]
        table.set_sort("pod")
        assert (table.sort_key, table.reverse) == ("pod", False)
        assert "Pod▲" in lines(table)[0]
        use_symbols(Symbols.ASCII)
        assert "Pod^" in lines(table)[0]
        use_symbols(None)


async def test_without_rows_the_reason_is_shown() -> None:
    table = LineTable(COLUMNS, empty="No pods yet: the cluster starts")
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        await pilot.pause()
        assert "No pods yet" in "\n".join(lines(table))
        table.set_empty("No pods match")
        assert "No pods match" in "\n".join(lines(table))
        table.set_rows(some(2))
        assert "No pods" not in "\n".join(lines(table))


async def test_other_columns_start_afresh() -> None:
    table = LineTable(COLUMNS)
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(some(2))
        table.set_columns(COLUMNS[:1])
        table.set_rows([Row("x", (Cell("x"),)), Row("y", ())])
        await pilot.pause()
        assert table.columns == COLUMNS[:1]
        assert lines(table)[:3] == ["Pod", "x", ""]
        assert len(table.rows) == 2


async def test_cursor_stays_on_its_row_when_the_columns_change() -> None:
    table = LineTable(COLUMNS)
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(some(30))
        table.move_to("worker-020")
        table.set_columns(COLUMNS[:2])
        table.set_rows(some(30))
        await pilot.pause()
        assert table.cursor_key == "worker-020"
        assert any("worker-020" in line for line in lines(table))
        table.set_columns(COLUMNS)
        table.forget()
        table.set_rows(some(30))
        assert table.cursor_key == "worker-000", "that of another cluster may be called the same"


async def test_wide_characters_keep_the_columns_aligned() -> None:
    table = LineTable((Column("a", "A", width=6), Column("b", "B")))
    async with Stage(table).run_test(size=(40, 6)) as pilot:
        table.set_rows(
            [Row(t, (Cell(t), Cell("end"))) for t in ("日本語", "日本語の", "👩‍👩‍👧", "plain")]
        )
        await pilot.pause()
        strips = [table.render_line(y) for y in range(1, 5)]
        assert {strip.cell_length for strip in strips} == {40}
        assert lines(table)[2].startswith("日本 …")


@pytest.mark.parametrize("size", [(80, 12), (7, 3), (1, 1), (200, 50)])
@pytest.mark.parametrize("theme", ["cockpit-dark", "ansi-16"])
async def test_any_size_and_theme_is_drawn(size: tuple[int, int], theme: str) -> None:
    table = LineTable(COLUMNS, zebra=True)
    stage = Stage(table, theme=theme)
    async with stage.run_test(size=size) as pilot:
        table.set_rows(some(60))
        table.focus()
        await pilot.press("j", "G")
        await pilot.pause()
        assert stage.export_screenshot()
        assert {strip.cell_length for strip in table.render_lines(table.size.region)} <= {size[0]}


@pytest.mark.parametrize("room", [0, 1, 5, 20, 40, 80, 200])
def test_columns_never_take_more_than_there_is(room: int) -> None:
    places = lay_out(COLUMNS, [20, 9, 5, 15, 40], room)
    needed = places[-1].x + places[-1].width
    assert needed <= max(room, 5)
    if room >= 60:
        assert needed == room


def test_growing_columns_share_by_weight() -> None:
    columns = (Column("a", "A", width=10, grow=3), Column("b", "B", width=10, grow=1))
    assert _widths(lay_out(columns, [0, 0], 62)) == [40, 20]


def test_a_soft_column_shrinks_before_another_is_hidden() -> None:
    columns = (Column("a", "A", min_width=5), Column("b", "B", width=10, priority=1))
    assert _widths(lay_out(columns, [30, 10], 20)) == [9, 10]
    assert _widths(lay_out(columns, [30, 10], 12)) == [12]


def test_a_firm_column_shrinks_after_the_others() -> None:
    columns = (Column("a", "A", min_width=10, firm=True), Column("b", "B", min_width=5))
    assert _widths(lay_out(columns, [30, 30], 41)) == [30, 10]
    assert _widths(lay_out(columns, [30, 30], 26)) == [20, 5]


def _widths(places: Sequence[Place]) -> list[int]:
    return [place.width for place in places]


async def test_a_move_of_the_cursor_repaints_two_lines() -> None:
    table = LineTable(COLUMNS)
    async with Stage(table).run_test(size=(80, 12)) as pilot:
        table.set_rows(some(5))
        table.focus()
        await pilot.pause()
        seen = watch_repaints(table)
        await pilot.press("j")
        await pilot.pause()
        assert {(region.y, region.height) for region in seen} == {(1, 1), (2, 1)}


async def test_focus_and_theme_change_what_is_drawn() -> None:
    table, other = LineTable(COLUMNS), LineTable(COLUMNS)
    stage = Stage(table, other)
    async with stage.run_test(size=(80, 24)) as pilot:
        table.set_rows(some(3))
        table.focus()
        await pilot.pause()
        focused = table.render_line(1)
        other.focus()
        await pilot.pause()
        blurred = table.render_line(1)
        assert blurred != focused
        stage.theme = "textual-light"
        await pilot.pause()
        assert table.render_line(1) != blurred


async def test_a_cursor_on_the_newest_row_stays_on_the_newest() -> None:
    table = LineTable(COLUMNS, newest_first=True)
    async with Stage(table).run_test(size=(80, 12)):
        table.set_rows(some(3))
        table.set_rows([row("worker-new"), *some(3)])
        assert table.cursor_key == "worker-new"
        table.move_to("worker-001")
        table.set_rows([row("worker-newer"), row("worker-new"), *some(3)])
        assert table.cursor_key == "worker-001"
