from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pytest
from textual.events import MouseScrollUp

from cockpit.logs.level import level
from cockpit.store.store import LogBuffer
from cockpit.tui.widgets.log.lines import LogLines
from cockpit.tui.widgets.log.view import LogView
from tests.tui.stage import Stage, lines, watch_repaints


def log(texts: Iterable[str], kept: int = 20_000) -> LogBuffer:
    buffer = LogBuffer(deque(maxlen=kept))
    return grow(buffer, texts)


def grow(buffer: LogBuffer, texts: Iterable[str]) -> LogBuffer:
    for text in texts:
        buffer.lines.append(text)
        buffer.total += 1
    return buffer


def steps(first: int, last: int) -> list[str]:
    return [f"step {n}" for n in range(first, last)]


async def test_the_end_is_followed() -> None:
    view, buffer = LogView(), log(steps(0, 100))
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        view.show(buffer)
        await pilot.pause()
        assert lines(view)[9] == "step 99"
        view.show(grow(buffer, steps(100, 103)))
        await pilot.pause()
        assert lines(view)[9] == "step 102"
        assert lines(view)[10].startswith(" following  103 lines")


async def test_scrolling_up_holds_still_and_counts_what_is_new() -> None:
    view, buffer = LogView(), log(steps(0, 100))
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        view.show(buffer)
        view.focus()
        await pilot.press("k", "k")
        assert not view.following
        before = lines(view)[:10]
        view.show(grow(buffer, steps(100, 112)))
        await pilot.pause()
        assert lines(view)[:10] == before
        assert "paused +12 new" in lines(view)[10]
        await pilot.press("G")
        await pilot.pause()
        assert view.following
        assert view.unread == 0
        assert lines(view)[9] == "step 111"


async def test_a_paused_view_stays_on_its_lines_when_old_ones_are_dropped() -> None:
    view, buffer = LogView(), log(steps(0, 100), kept=100)
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        view.show(buffer)
        view.focus()
        await pilot.press("pageup", "pageup")
        await pilot.pause()
        before = lines(view)[:10]
        view.show(grow(buffer, steps(100, 130)))
        await pilot.pause()
        assert lines(view)[:10] == before
        view.show(grow(buffer, steps(130, 400)))
        await pilot.pause()
        assert lines(view)[0] == "step 300"
        assert "the last 100 kept" in lines(view)[10]


async def test_a_paused_view_repaints_its_status_alone() -> None:
    view, buffer = LogView(), log(steps(0, 100))
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        view.show(buffer)
        view.focus()
        await pilot.press("g")
        await pilot.pause()
        seen = watch_repaints(view)
        view.show(buffer)
        assert seen == []
        view.show(grow(buffer, ["more"]))
        assert {(region.y, region.height) for region in seen} == {(10, 1)}


async def test_a_filter_shows_matching_lines_and_keeps_up() -> None:
    view, buffer = LogView(), log(["a loss", "b", "C LOSS"])
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        view.show(buffer)
        assert view.set_filter("loss") == ""
        view.show(grow(buffer, ["d", "e loss"]))
        await pilot.pause()
        assert lines(view)[:4] == ["a loss", "C LOSS", "e loss", ""]
        assert "/loss/ in 3" in lines(view)[10]
        view.set_filter("LOSS")
        assert lines(view)[:2] == ["C LOSS", ""]
        view.set_filter("")
        assert lines(view)[1] == "b"
        assert view.pattern == ""


async def test_an_invalid_pattern_is_reported_and_changes_nothing() -> None:
    view = LogView()
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        view.show(log(["a", "b"]))
        why = view.set_filter("(")
        await pilot.pause()
        assert "unterminated" in why
        assert view.filter_error == why
        assert lines(view)[:2] == ["a", "b"]
        assert "unterminated" in lines(view)[10]
        view.set_filter("a")
        assert view.filter_error == ""


async def test_a_filter_that_matches_nothing_reports_it() -> None:
    view = LogView(empty="No lines yet: the job is pending")
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        await pilot.pause()
        assert "the job is pending" in lines(view)[0]
        view.show(log(["a", "b"]))
        view.set_filter("zebra")
        assert "None of 2 lines matches /zebra/" in lines(view)[0]


async def test_matches_are_found_without_hiding_the_rest() -> None:
    view = LogView()
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        view.show(log([f"line {n}{' boom' if n in (20, 60) else ''}" for n in range(100)]))
        view.set_filter("boom", only_matching=False)
        view.focus()
        await pilot.press("g", "n")
        await pilot.pause()
        assert lines(view)[0] == "line 20 boom"
        await pilot.press("n")
        await pilot.pause()
        assert lines(view)[0] == "line 60 boom"
        await pilot.press("N")
        await pilot.pause()
        assert lines(view)[0] == "line 20 boom"
        await pilot.press("N", "n", "n", "n")
        await pilot.pause()
        assert lines(view)[0] == "line 60 boom"


async def test_markup_in_a_line_is_shown_literally() -> None:
    view = LogView()
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        view.show(log(["[red]not markup[/red] [/] \\[x]"]))
        await pilot.pause()
        assert lines(view)[0] == "[red]not markup[/red] [/] \\[x]"


async def test_a_long_line_is_read_by_going_right() -> None:
    view = LogView()
    async with Stage(view).run_test(size=(40, 5)) as pilot:
        view.show(log(["0123456789" * 5 + "日本語", "short"]))
        view.focus()
        await pilot.pause()
        assert lines(view)[0].endswith("›")
        await pilot.press("right")
        await pilot.pause()
        assert lines(view)[0].endswith("日本語")
        assert "from column" in lines(view)[4]
        await pilot.press("right", "left", "left")
        await pilot.pause()
        assert lines(view)[0].startswith("0123")


async def test_another_log_is_shown_from_its_end() -> None:
    view = LogView()
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        view.show(log(steps(0, 100)))
        view.focus()
        await pilot.press("g", "j", "down", "pagedown")
        view.show(log(["only"]))
        await pilot.pause()
        assert view.following
        assert lines(view)[:2] == ["only", ""]


async def test_the_wheel_stops_following() -> None:
    view = LogView()
    async with Stage(view).run_test(size=(80, 11)) as pilot:
        view.show(log(steps(0, 100)))
        await pilot.pause()
        await pilot._post_mouse_events([MouseScrollUp], view, offset=(4, 4))
        await pilot.pause()
        assert not view.following
        await pilot.resize_terminal(60, 9)
        await pilot.pause()
        assert not view.following


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("ERROR disk full", "bad"),
        ("Traceback (most recent call last):", "bad"),
        ("torch.cuda.OutOfMemoryError: CUDA", "bad"),
        ("WARNING slow", "warning"),
        ("x.py:3: UserWarning: old", "warning"),
        ("0 errors found", ""),
        ("step 3", ""),
    ],
)
def test_errors_and_warnings_are_outliers(line: str, found: str) -> None:
    assert level(line) == found


def test_a_log_that_starts_again_is_read_again() -> None:
    shown = LogLines()
    shown.update(log(steps(0, 50)))
    assert shown.update(log(["new"]))
    assert (len(shown), shown.line(0), shown.total) == (1, "new", 1)


@pytest.mark.parametrize("size", [(1, 1), (5, 2), (200, 50)])
async def test_any_size_is_drawn(size: tuple[int, int]) -> None:
    view = LogView()
    stage = Stage(view, theme="ansi-16")
    async with stage.run_test(size=size) as pilot:
        view.show(log(["(RayTrainWorker pid=3, ip=10.0.0.1) ERROR boom"] * 60))
        view.set_filter("boom")
        await pilot.pause()
        assert stage.export_screenshot()
