from __future__ import annotations

import math
import random

import pytest

from cockpit.plot import buckets, points
from cockpit.plot.scale import log_range, nice_step, y_range
from cockpit.store.series import Series


def test_screen_and_report_see_the_same_gaps_however_the_curve_grew() -> None:
    chance = random.Random(7)
    grown = Series(2000)
    folded = buckets.Points(grown)
    at_s = 0.0
    for n in range(900):
        usual_s = 1.0 if n < 300 else 20.0 if n < 600 else 0.01
        at_s += chance.choice([usual_s] * 30 + [3.0, 6.0, 200.0])
        grown.append(at_s, 1.0)
        folded.sync()
    assert folded.holes == points.gaps(grown.times)
    parts = list(points.segments(grown.times, grown.values))
    assert [part[0][0] for part in parts[1:]] == [grown.times[at] for at in folded.holes]
    assert len(parts) > 10


def test_a_gap_in_the_stream_is_not_drawn_over() -> None:
    times = [float(n) for n in range(10)] + [float(n) for n in range(40, 50)]
    parts = list(points.segments(times, [1.0] * 20))
    assert [(part[0][0], part[-1][0]) for part in parts] == [(0.0, 9.0), (40.0, 49.0)]


def test_a_thinned_past_is_no_row_of_holes() -> None:
    times = [float(n) for n in range(0, 640, 64)] + [float(n) for n in range(640, 700)]
    assert len(list(points.segments(times, [1.0] * len(times)))) == 1


def test_ranks_that_report_one_after_the_other_leave_no_holes() -> None:
    times = [second + rank * 0.01 for second in range(0, 40, 5) for rank in range(4)]
    assert len(list(points.segments(times, [1.0] * len(times)))) == 1


def test_no_line_goes_over_the_end_of_an_attempt_or_through_nan() -> None:
    times = [float(n) for n in range(6)]
    parts = list(points.segments(times, [1, 2, math.nan, 4, 5, math.inf], breaks=(3.5,)))
    assert [len(part) for part in parts] == [2, 1, 1]
    assert points.not_finite(times, [1, 2, math.nan, 4, 5, math.inf]) == [2.0, 5.0]


def test_decimation_keeps_the_one_spike_and_the_ends() -> None:
    part = [(float(n), 1.0) for n in range(10_000)]
    part[7_777] = (7_777.0, 9.0)
    kept = points.thinned(part, 0.0, 10_000.0, 100)
    assert len(kept) <= 400
    assert (7_777.0, 9.0) in kept
    assert (kept[0], kept[-1]) == (part[0], part[-1])
    assert kept == sorted(kept)


def test_quantiles_are_over_time_and_not_over_points() -> None:
    times = [0.0, 100.0, 200.0, 300.0] + [300.0 + n for n in range(1, 11)]
    values = [1.0] * 4 + [5.0] * 10
    assert points.quantile(points.weighted(times, values), 0.5) == 1.0
    assert points.quantile(points.weighted(times, values), 1.0) == 5.0
    assert points.quantile([], 0.5) is None


def test_a_hole_has_no_weight() -> None:
    times = [0.0, 1.0, 2.0, 3.0, 4.0, 1_000.0, 1_001.0, 1_002.0]
    weights = points.weighted(times, [1.0] * 5 + [2.0] * 3)
    assert sum(weight for _, weight in weights) == pytest.approx(8.0)


def test_only_points_of_the_periods_count() -> None:
    times = [float(n) for n in range(10)]
    found = points.between(times, times, [(1.0, 2.0), (8.0, 20.0)])
    assert found == ([1.0, 2.0, 8.0, 9.0], [1.0, 2.0, 8.0, 9.0])


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.7e308), (5e-324, 1.0), (1e307, 1.7e308)])
def test_a_chart_of_values_near_the_limits_of_a_float_has_ticks(low: float, high: float) -> None:
    bottom, top, ticks = log_range(low, high, 10)
    assert bottom < top
    assert all(map(math.isfinite, ticks))
    assert y_range(low, high, 10)[0] <= low
    assert nice_step(high - low, 5) > 0
