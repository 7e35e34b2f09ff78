from __future__ import annotations

from array import array
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from cockpit.tui.terminal.symbols import Symbols, use_symbols
from cockpit.tui.widgets.chart.axis import Axis
from cockpit.tui.widgets.chart.chart import ChartOptions, Curve, LineChart, Mark
from tests.tui.stage import Stage, lines, watch_repaints

T0 = 1_700_000_000.0


@pytest.fixture(autouse=True)
def _braille() -> Iterator[None]:
    use_symbols(Symbols.BRAILLE)
    yield
    use_symbols(None)


def flat(seconds: int, label: str = "mean") -> Curve:
    return Curve(label, array("d", [T0 + n for n in range(seconds)]), array("d", [1.0] * seconds))


async def test_unchanged_chart_cells_are_not_repainted() -> None:
    chart = LineChart("Loss", window_s=900)
    async with Stage(chart).run_test(size=(80, 12)) as pilot:
        chart.set_curves([flat(500)], T0 + 500)
        await pilot.pause()
        seen = watch_repaints(chart)
        chart.set_curves([flat(500)], T0 + 500)
        chart.set_marks(())
        assert seen == []
        chart.set_curves([flat(530)], T0 + 530)
        assert seen
        assert all(region.height == 1 for region in seen)
        assert sum(region.area for region in seen) < 80 * 12 / 2


async def test_the_chart_reports_what_it_waits_for() -> None:
    chart = LineChart("Loss", empty="No loss yet: waiting for the first step")
    async with Stage(chart).run_test(size=(80, 12)) as pilot:
        await pilot.pause()
        assert "waiting for the first step" in chart.text()
        chart.set_empty("Nothing")
        assert "Nothing" in chart.text()


async def test_curves_that_are_set_are_drawn() -> None:
    chart = LineChart()
    async with Stage(chart).run_test(size=(80, 12)) as pilot:
        chart.set_curves([flat(500)])
        chart.set_marks([Mark(T0 + 100, "pod-kill", "drill")])
        options = ChartOptions("Throughput", "/s", 300, axis=Axis.CLOCK)
        chart.set_options(options)
        await pilot.pause()
        assert chart.window_s == 300
        text = "\n".join(lines(chart))
        assert text.startswith("Throughput  ● mean 1/s")
        assert "pod-kill" not in text
        chart.set_options(replace(options, window_s=None))
        assert "D pod-kill" in chart.text()
        await pilot.resize_terminal(40, 6)
        await pilot.pause()
        assert len(lines(chart)) == 6


async def test_a_change_of_symbols_is_drawn_at_the_next_paint() -> None:
    chart = LineChart()
    async with Stage(chart).run_test(size=(80, 12)) as pilot:
        chart.set_curves([flat(500, "")])
        await pilot.pause()
        use_symbols(Symbols.ASCII)
        assert "\n".join(lines(chart)).isascii()
