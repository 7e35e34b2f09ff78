from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.model.event import Event, MetricsReported, RankSampled, RunSeen
from cockpit.model.run import RunState, RunSummary
from cockpit.recorder.reading.library import Library, Recorded
from cockpit.recorder.writing.recorder import Recorder
from cockpit.store.store import Store
from cockpit.tui.views.charts.comparison import choices
from cockpit.tui.views.charts.panel import Panel
from cockpit.tui.views.charts.view import ChartsView
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import START_S, digits, training, wide
from tests.tui.stage import watch_repaints


def view_of(seen: Seen) -> ChartsView:
    return seen.app.screen.query_one(ChartsView)


def panels(seen: Seen) -> list[Panel]:
    return [panel for panel in view_of(seen).query(Panel) if panel.display]


async def test_a_small_terminal_shows_one_chart_and_a_large_one_six(cockpit: Open) -> None:
    async with cockpit(at_s=200) as seen:
        await seen.press("3")
        await seen.sees("▶ Loss", "charts 1/13")
        assert len(panels(seen)) == 1
        await seen.pilot.resize_terminal(200, 50)
        await seen.sees("Loss", "Samples", "Step time", "CPU", "Memory", "charts 1/3")
        assert len(panels(seen)) == 6
        await seen.press("n")
        await seen.sees("charts 2/3", "Communication")
        await seen.press("N", "down", "enter")
        await seen.sees("▶ Samples", "charts 2/13")
        assert len(panels(seen)) == 1
        await seen.press("escape")
        await seen.sees("charts 1/3")


async def test_zoom_pan_and_follow(cockpit: Open) -> None:
    async with cockpit(at_s=200) as seen:
        await seen.press("3", "plus", "plus")
        await seen.sees("last 45.8 s")
        await seen.press("left_square_bracket")
        await seen.sees("08:02:11 to 08:02:57")
        await seen.press("end")
        await seen.sees("last 45.8 s")
        await seen.press("minus", "minus")
        await seen.sees("whole run")
        await seen.press("z", "f")
        await seen.sees("whole run")


async def test_the_cursor_reports_all_charts_of_one_time(cockpit: Open) -> None:
    async with cockpit(at_s=200, size=(200, 50)) as seen:
        await seen.press("3", "left", "shift+left", "shift+left")
        await seen.sees("08:02:", "step ")
        view = view_of(seen)
        cursor = view.viewport.cursor
        assert cursor is not None
        assert {panel.options.cursor for panel in panels(seen)} == {cursor}
        run = seen.app.store.runs["run-3f9a"]
        reported = min(run.curves["loss"], key=lambda point: abs(point[0] - cursor))[1]
        assert f"Loss  ● {reported:.4f}" in seen.text
        await seen.press("escape")
        assert view.viewport.cursor is None


async def test_the_mouse_points_zooms_and_opens(cockpit: Open) -> None:
    async with cockpit(at_s=200, size=(200, 50)) as seen:
        await seen.press("3")
        await seen.sees("Samples")
        view, panel = view_of(seen), panels(seen)[1]
        await seen.pilot.click(panel, offset=(30, 8))
        await seen.until(lambda: view.viewport.cursor is not None)
        stretch = panel.stretch
        assert stretch is not None
        assert stretch.cell(view.viewport.cursor or 0.0) == 30
        assert view.selected == "samples_per_s"
        panel.post_message(Panel.Scrolled(panel, stretch.place(30), 0.5))
        await seen.until(lambda: view.viewport.span is not None)
        panel.post_message(Panel.Opened(panel))
        await seen.until(lambda: len(panels(seen)) == 1)


async def test_the_axis_goes_from_the_clock_to_the_start_to_steps(cockpit: Open) -> None:
    async with cockpit(at_s=200) as seen:
        seen.app.clear_notifications()  # the toast of the recovery covers the chart for 10 s
        await seen.press("3", "x")
        await seen.sees("since the start", "3m")
        await seen.press("x")
        await seen.sees("by step", "3000")
        await seen.press("left", "shift+left")
        await seen.sees("08:02:", "step 2,")
        await seen.press("x")
        await seen.sees("08:02")
        assert "by step" not in seen.text


async def test_smoothing_and_logarithm_are_reported(cockpit: Open) -> None:
    async with cockpit(at_s=200, size=(120, 40)) as seen:
        await seen.press("3", "s", "s", "o")
        await seen.sees("smooth 0.9", "log")
        assert any(panel._curves[0].raw is not None for panel in panels(seen))
        await seen.sees("0.1┤")


async def test_a_filter_leaves_the_charts_that_hold_it(cockpit: Open) -> None:
    async with cockpit(at_s=100) as seen:
        await seen.press("3", "slash", *"grad", "enter")
        await seen.sees("Gradient norm", "only “grad”")
        await seen.press("escape")
        await seen.sees("▶ Gradient norm", "charts 7/13")


async def test_keys_do_nothing_where_a_filter_leaves_no_chart(cockpit: Open) -> None:
    async with cockpit(at_s=100) as seen:
        await seen.press("3", "slash", *"no such", "enter")
        await seen.sees("No chart of that name.")
        await seen.press("n", "N", "down", "up", "left", "plus", "enter")
        await seen.sees("No chart of that name.")
        await seen.press("escape", "escape", "escape")
        await seen.until(lambda: "No chart of that name." not in seen.text)


async def test_of_a_thousand_ranks_eight_are_drawn(cockpit: Open) -> None:
    async with cockpit(at_s=30, simulation=wide(1000, 30), size=(120, 40)) as seen:
        await seen.press("3", "a")
        await seen.sees("one curve per rank", "rank ")
        assert all(len(panel._curves) == 8 for panel in panels(seen))


async def test_keys_that_two_views_use_do_what_belongs_to_the_one_shown(cockpit: Open) -> None:
    async with cockpit(at_s=100) as seen:
        await seen.press("3", "minus", "o")
        await seen.sees("log")
        assert "Scale" not in seen.text
        await seen.press("1", "plus")
        await seen.sees("Scale")


async def test_a_new_point_repaints_little(cockpit: Open) -> None:
    async with cockpit(at_s=200) as seen:
        await seen.press("3")
        await seen.sees("▶ Loss")
        await seen.advance(201)
        regions = watch_repaints(panels(seen)[0])
        await seen.advance(202)
        assert regions
        assert sum(region.area for region in regions) < 80 * 20 / 5


async def test_a_recording_is_laid_over(
    cockpit: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.config.paths.state_dir", lambda: tmp_path)
    recorder = Recorder(Library(tmp_path).path_of("run-old"))
    recorder.take(
        RunSeen(
            at_s=START_S - 900, source="telemetry", run_id="run-old", name="before",
            state=RunState.RUNNING,
        )
    )  # fmt: skip
    for event in training(-890, -700, attempt=1, first_step=1):
        recorder.take(_of_run(event, "run-old"))
    recorder.close()
    async with cockpit(at_s=100, simulation=digits(kill_s=None)) as seen:
        await seen.press("3", "c")
        await seen.sees("Compare with", "[ ] ")
        await seen.press("enter")
        await seen.sees("[x] ")
        await seen.press("escape")
        await seen.until(lambda: len(panels(seen)[0]._curves) == 2)
        await seen.sees("● digits")
        live, past = panels(seen)[0]._curves
        assert live.times[0] == past.times[0]
        assert past.times[-1] > live.times[-1]


async def test_keys_do_nothing_where_no_other_run_is_there_to_compare(
    cockpit: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.config.paths.state_dir", lambda: tmp_path)
    async with cockpit(at_s=100) as seen:
        await seen.press("3", "c")
        await seen.sees("There is no other run here")
        await seen.press("space", "n")
        await seen.sees("There is no other run here")
        await seen.press("escape")
        await seen.sees("▶ Loss")


def test_recording_of_one_step_has_no_plural(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = RunSummary("r", "r", "", RunState.FINISHED, steps=1)
    recorded = Recorded(tmp_path / "r.cockpit", summary, 1)
    monkeypatch.setattr(Library, "list", lambda library: [recorded])
    [choice] = choices(Store(), tmp_path)
    assert choice.about.endswith(", 1 step")


def _of_run(event: Event, run_id: str) -> Event:
    assert isinstance(event, RankSampled | MetricsReported)
    return replace(event, run_id=run_id)
