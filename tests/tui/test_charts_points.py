from __future__ import annotations

import math
import random
from array import array

import pytest

from cockpit.plot.buckets import FINE, INFINITE, NOT_A_NUMBER, Points
from cockpit.store.series import Series
from cockpit.tui.widgets.chart.derived_series import Projected, Smoothed
from cockpit.tui.widgets.chart.picture import Curve
from cockpit.tui.widgets.chart.plot import trace


def series(points: list[tuple[float, float]], capacity: int = 1000) -> Series:
    made = Series(capacity)
    for at_s, value in points:
        made.append(at_s, value)
    return made


def plain(values: list[float]) -> tuple[float, float, int]:
    finite = [value for value in values if math.isfinite(value)]
    odd = NOT_A_NUMBER if any(map(math.isnan, values)) else INFINITE
    odd = FINE if len(finite) == len(values) else odd
    return min(finite, default=math.inf), max(finite, default=-math.inf), odd


def test_buckets_hold_what_a_plain_loop_finds_however_the_series_grew() -> None:
    chance = random.Random(5)
    values = [chance.choice([chance.gauss(0, 1)] * 60 + [math.nan, math.inf]) for _ in range(900)]
    grown = series([])
    points = Points(grown)
    for at, value in enumerate(values):
        grown.append(float(at), value)
        if at % 37 == 0:
            points.sync()
    points.sync()
    for _ in range(300):
        begin, end = sorted(chance.sample(range(901), 2))
        assert points.extremes(begin, end) == plain(values[begin:end])


def test_a_series_that_was_thinned_is_read_again() -> None:
    grown = series([(float(n), float(n)) for n in range(64)], capacity=64)
    points = Points(grown)
    for n in range(64, 200):
        grown.append(float(n), float(n))
        points.sync()
    assert len(grown) < 200
    assert points.extremes(0, len(grown)) == plain(list(grown.values))
    assert points.restarts > 1


def test_an_older_part_put_before_is_read_again() -> None:
    grown = series([(100.0, 1.0), (101.0, 2.0)])
    points = Points(grown)
    grown.prepend([(float(n), 50.0) for n in range(10)])
    points.sync()
    assert points.extremes(0, len(grown))[1] == 50.0


def test_a_hole_is_far_from_what_is_usual_around_it_and_longer_than_five_seconds() -> None:
    often = [float(n) for n in range(40)]
    rare = [100.0 + 10 * n for n in range(40)]
    late = [500.0 + n for n in range(20)] + [523.5 + n for n in range(20)]
    points = Points(series([(at_s, 1.0) for at_s in often + rare + late]))
    # Ten seconds are usual in the second part, and four are no hole in the third.
    assert points.holes == [40]


def test_a_trace_grows_by_its_new_points_to_what_a_new_one_is() -> None:
    chance = random.Random(2)
    times, values = array("d"), array("d")
    curve = Curve("", times, values)
    points = Points(curve)
    at_s = 0.0
    for _ in range(400):
        at_s += 60.0 if chance.random() < 0.01 else 1.0
        times.append(at_s)
        values.append(chance.choice([chance.gauss(0, 1)] * 30 + [math.nan]))
        points.sync()
        grown = trace(points, 0.0, 2000.0, 80, [150.5, 303.0])
        new = trace(Points(curve), 0.0, 2000.0, 80, [150.5, 303.0])
        assert repr(grown) == repr(new)


@pytest.mark.parametrize("pixels", [20, 50, 100])
def test_no_line_is_drawn_across_a_hole_or_an_attempt_at_any_width(pixels: int) -> None:
    times = [float(n) for n in range(2000)] + [3000.0 + n for n in range(2000)]
    points = Points(Curve("", times, [1.0] * 4000))
    one = trace(points, 0.0, 5000.0, pixels)
    drawn = [column for column in range(pixels) if not math.isnan(one.low[column])]
    after = next(column for column in drawn if column * 5000 / pixels >= 2500)
    assert after not in one.joined
    assert len(one.joined) >= len(drawn) - 3
    broken = trace(points, 0.0, 2000.0, pixels, breaks=[1000.0])
    assert len(broken.joined) == len(one_piece := trace(points, 0.0, 2000.0, pixels).joined) - 1
    assert set(broken.joined) < set(one_piece)


def test_a_window_between_two_points_shows_the_line_between_them() -> None:
    points = Points(Curve("", [0.0, 100.0, 200.0], [0.0, 10.0, 20.0]))
    one = trace(points, 40.0, 60.0, 10)
    assert [one.low[0], one.low[9]] == pytest.approx([4.0, 6.0])
    assert one.joined == [9]


def test_curve_by_step_takes_repeated_steps_from_the_last_attempt() -> None:
    progress = series([(1, 10), (2, 20), (3, 30), (60, 20), (61, 30), (62, 40)])
    loss = series([(1, 1.0), (2, 2.0), (3, 3.0), (60, 2.5), (61, 3.5), (62, 4.5)])
    placed = Projected(loss, progress=progress)
    placed.sync()
    assert list(zip(placed.times, placed.values, strict=True)) == [
        (10, 1.0), (20, 2.5), (30, 3.5), (40, 4.5),
    ]  # fmt: skip


def test_by_step_points_between_two_ticks_lie_between_two_steps() -> None:
    progress = series([(10, 100), (20, 200)])
    placed = Projected(series([(5, 0.0), (15, 1.0), (20, 2.0), (30, 3.0)]), progress=progress)
    placed.sync()
    assert list(placed.times) == [150.0, 200.0]
    assert list(placed.values) == [1.0, 3.0]


def test_incremental_series_equals_one_that_is_built_at_once() -> None:
    chance = random.Random(4)
    loss, progress = series([], 128), series([], 128)
    grown = Smoothed(Projected(loss, progress=progress), 0.9)
    step = 0
    for at in range(500):
        step = max(0, step - 15) if at % 90 == 89 else step + 1
        progress.append(float(at), float(step))
        loss.append(float(at), chance.gauss(0, 1))
        grown.sync()
        new = Smoothed(Projected(loss, progress=progress), 0.9)
        new.sync()
        assert grown.times == new.times
        assert grown.values == pytest.approx(new.values)


def test_smoothing_is_without_the_pull_of_its_start() -> None:
    """By hand, as TensorBoard does: m = 0.6 m + 0.4 v, shown as m / (1 - 0.6^n)."""
    smooth = Smoothed(series([(1, 5.0), (2, 1.0), (3, math.nan), (4, 3.0)]), 0.6)
    smooth.sync()
    second = (0.6 * 0.4 * 5 + 0.4 * 1) / (1 - 0.36)
    third = (0.6 * (0.6 * 0.4 * 5 + 0.4 * 1) + 0.4 * 3) / (1 - 0.216)
    assert smooth.values[0] == pytest.approx(5.0)
    assert smooth.values[1] == pytest.approx(second)
    assert math.isnan(smooth.values[2])
    assert smooth.values[3] == pytest.approx(third)


def test_a_cursor_reads_the_nearest_point_and_nothing_in_a_hole() -> None:
    times = [float(n) for n in range(40)] + [100.0 + n for n in range(40)]
    points = Points(Curve("", times, [float(n) for n in range(80)]))
    assert points.at(7.4, 1.0) == 7.0
    assert points.at(70.0, 1.0) is None
    assert points.at(-20.0, 1.0) is None
