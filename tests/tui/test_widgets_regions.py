"""A widget that draws its own lines forgets the regions that it has painted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from textual.geometry import Region
from textual.widget import Widget

from cockpit.tui.widgets.chart.chart import LineChart
from cockpit.tui.widgets.heatmap import HeatMap
from cockpit.tui.widgets.line_widget import REGIONS_KEPT
from cockpit.tui.widgets.log.view import LogView
from cockpit.tui.widgets.table.row_view import RowLines
from tests.tui.stage import Stage


@pytest.mark.parametrize("shown", [True, False], ids=["shown", "hidden"])
@pytest.mark.parametrize("kind", [LineChart, HeatMap, LogView, partial(RowLines, ())])
async def test_changed_regions_are_not_kept(kind: Callable[[], Widget], shown: bool) -> None:
    widget = kind()
    async with Stage(widget).run_test(size=(80, 24)) as pilot:
        widget.display = shown
        await pilot.pause()
        for x in range(80):
            for y in range(20):
                widget.refresh(Region(x, y, 1, 1))
        await pilot.pause()
        assert len(widget._dirty_regions) + len(widget._repaint_regions) <= REGIONS_KEPT + 1
