from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.tui.views.charts.viewport import WEIGHTS, Reach, Viewport

REACH = Reach(1000.0, 2000.0, 2000.0)


def test_zooming_without_a_cursor_keeps_following_the_newest() -> None:
    viewport = Viewport().zoomed(0.5, REACH)
    assert viewport.shown(REACH) == (1500.0, 2000.0)
    later = Reach(1000.0, 2100.0, 2100.0)
    assert viewport.shown(later) == (1600.0, 2100.0)


def test_the_cursor_stays_where_it_is_on_the_screen() -> None:
    viewport = Viewport(cursor=1200.0).zoomed(0.5, REACH)
    start, end = viewport.shown(REACH)
    assert end - start == 500.0
    assert (1200.0 - start) / (end - start) == pytest.approx(0.2)


def test_zooming_out_ends_with_all_of_it() -> None:
    viewport = Viewport(cursor=1200.0).zoomed(0.3, REACH).zoomed(100, REACH)
    assert (viewport.span, viewport.end) == (None, None)


def test_nothing_shorter_than_the_least_is_shown() -> None:
    assert Viewport().zoomed(1e-9, REACH).span == 2.0


def test_panning_stops_at_the_beginning_and_follows_at_the_end() -> None:
    viewport = Viewport().zoomed(0.2, REACH)
    earlier = viewport.panned(-0.5, REACH)
    assert earlier.shown(REACH) == (1700.0, 1900.0)
    assert earlier.panned(-99, REACH).shown(REACH) == (1000.0, 1200.0)
    assert earlier.panned(99, REACH).end is None


def test_all_of_it_can_be_panned_only_into_what_another_run_has_more() -> None:
    assert Viewport().panned(0.5, REACH) == Viewport()
    longer = Reach(1000.0, 2000.0, 4000.0)
    assert Viewport().panned(0.5, longer).shown(longer) == (1500.0, 2500.0)


def test_the_cursor_begins_at_the_newest_and_takes_the_window_along() -> None:
    viewport = Viewport().zoomed(0.1, REACH).moved(-1, 10.0, REACH)
    assert viewport.cursor == 1995.0
    viewport = viewport.moved(-12, 10.0, REACH)
    assert viewport.cursor == 1875.0
    start, end = viewport.shown(REACH)
    assert start <= 1875.0 < end
    assert end - start == pytest.approx(100.0)
    assert viewport.moved(-999, 10.0, REACH).cursor == 1000.0
    assert viewport.following() == Viewport(span=100.0)


def test_smoothing_goes_round() -> None:
    viewport, seen = Viewport(), []
    for _ in WEIGHTS:
        viewport = viewport.smoother()
        seen.append(viewport.weight)
    assert seen == [0.6, 0.9, 0.97, 0.0]
    assert replace(viewport, weight=0.123).smoother().weight == 0.0
