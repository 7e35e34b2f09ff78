from __future__ import annotations

import math
import random
from array import array
from collections.abc import Sequence

import pytest

from cockpit.plot.buckets import FINE, INFINITE, NOT_A_NUMBER, Points
from cockpit.plot.scale import nice_step, time_step, y_range
from cockpit.tui.terminal.symbols import Symbols
from cockpit.tui.widgets.chart.axis import extent, time_labels, value_text, y_axis
from cockpit.tui.widgets.chart.canvas import Canvas
from cockpit.tui.widgets.chart.marks import MARKS, Mark
from cockpit.tui.widgets.chart.picture import ChartOptions, Curve, compose
from cockpit.tui.widgets.chart.plot import Trace, trace
from training.telemetry.metric_table import Unit

T0 = 1_700_000_000.0


def curve(values: list[float], label: str = "", step_s: float = 1.0) -> Curve:
    times = array("d", [T0 + step_s * n for n in range(len(values))])
    return Curve(label, times, array("d", values))


def picture(
    curves: list[Curve], width: int = 60, height: int = 12, options: ChartOptions | None = None,
    marks: list[Mark] | None = None, symbols: Symbols = Symbols.BRAILLE, span_s: float = 100,
) -> str:  # fmt: skip
    return compose(
        width, height, curves, marks or [], options or ChartOptions(), T0 + span_s, symbols
    ).grid.text()


def traced(
    times: Sequence[float], values: Sequence[float], start: float, end: float, pixels: int
) -> Trace:
    return trace(Points(Curve("", times, values)), start, end, pixels)


def test_the_spike_between_two_pixels_is_kept() -> None:
    values = [0.0] * 1000
    values[500] = 9.0
    one = traced(curve(values).times, values, T0, T0 + 1000, 50)
    assert max(one.high) == 9.0
    assert one.low.count(0.0) == 50


def test_a_column_holds_what_a_plain_loop_finds() -> None:
    random.seed(3)
    times = sorted(random.uniform(0, 100) for _ in range(500))
    values = [random.choice([random.random(), math.nan, math.inf]) for _ in times]
    one = traced(times, values, 10, 90, 40)
    for column in range(40):
        held = [
            v for t, v in zip(times, values, strict=True)
            if 10 + column * 2 <= t < 12 + column * 2
        ]  # fmt: skip
        finite = [v for v in held if math.isfinite(v)]
        if finite and 0 < column < 39:
            assert (one.low[column], one.high[column]) == (min(finite), max(finite))
        elif not finite and 0 < column < 39:
            assert math.isnan(one.low[column])
        odd = (
            NOT_A_NUMBER
            if any(map(math.isnan, held))
            else INFINITE
            if len(finite) < len(held)
            else FINE
        )
        assert one.odd[column] == odd


def test_nan_breaks_the_line_and_is_marked() -> None:
    values = [1.0, 2.0, math.nan, 2.0, 1.0, 2.0]
    one = traced(curve(values).times, values, T0, T0 + 6, 6)
    assert list(one.odd) == [FINE, FINE, NOT_A_NUMBER, FINE, FINE, FINE]
    assert one.joined == [1, 4, 5]
    assert "×" in picture([curve(values)], span_s=6)


def test_a_pause_is_a_gap() -> None:
    times = [T0 + n for n in range(10)] + [T0 + 60 + n for n in range(10)]
    one = traced(times, [1.0] * 20, T0, T0 + 70, 70)
    assert 60 not in one.joined
    assert {1, 61} <= set(one.joined)


def test_sparse_points_are_joined_by_a_line() -> None:
    canvas = Canvas(20, 4, Symbols.ASCII)
    canvas.draw(traced([0, 10, 19], [0, 1, 0], 0, 20, 20), 0.0, 1.0, 0)
    assert {x for y in range(4) for x, _, _ in canvas.drawn(y)} == set(range(20))


def test_bounds_leave_out_what_is_not_finite() -> None:
    def bounds(times: list[float], values: list[float]) -> tuple[float, float] | None:
        return Points(Curve("", times, values)).bounds(0, 9)

    assert bounds([1, 2, 3, 4], [1, math.inf, math.nan, -2]) == (-2, 1)
    assert bounds([1], [math.nan]) is None
    assert bounds([], []) is None


@pytest.mark.parametrize(("span", "step"), [(10, 2), (1, 0.2), (0.07, 0.02), (9e9, 2e9), (0, 1)])
def test_ticks_are_round(span: float, step: float) -> None:
    assert nice_step(span, 5) == pytest.approx(step)


def test_ranges_that_are_odd_still_give_ticks() -> None:
    bottom, top, ticks = y_range(5.0, 5.0, 10)
    assert bottom < 5.0 < top
    assert ticks
    assert y_range(0.0, 0.0, 10)[2]
    assert y_range(-1e308, 1e308, 10)[2] == []


@pytest.mark.parametrize(
    ("low", "high", "unit", "label"),
    [
        (0, 2.3, "", "2"),
        (0.0100, 0.0103, "", "0.0102"),
        (0, 25_000, "", "20k"),
        (0, 0.2, "s", "200ms"),
        (0, 30, "s", "20s"),
        (0, 900, "s", "10m"),
        (0, 20_000, "s", "4h"),
        (0, 100, "%", "50%"),
        (0, 3 * 1024**3, "B", "2GiB"),
        (0, 1500, "/s", "1000"),
        (0, 15_000, "/s", "10k"),
    ],
)
def test_labels_carry_the_unit(low: float, high: float, unit: Unit, label: str) -> None:
    labels = [text for _, text in y_axis(low, high, 10, unit)[2]]
    assert label in labels
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2048, "B", "2.0 KiB"),
        (1.5, "s", "1.5 s"),
        (50, "%", "50 %"),
        (2e3, "/s", "2k/s"),
        (1, "", "1.000"),
    ],
)
def test_a_legend_reports_the_newest_value_in_its_unit(value: float, unit: Unit, text: str) -> None:
    assert value_text(value, unit) == text


def test_time_is_labelled_back_from_now() -> None:
    labels = time_labels(T0, T0 + 600, T0 + 600, 60, clock=False)
    assert labels[-1] == (59, "now")
    assert [text for _, text in labels] == ["-10m", "-8m", "-6m", "-4m", "-2m", "now"]
    assert time_labels(T0, T0, T0, 60, clock=False) == []
    assert [t for _, t in time_labels(T0, T0 + 200_000, T0 + 200_000, 40, clock=False)] == [
        "-2d", "-1d", "now",
    ]  # fmt: skip


def test_time_is_labelled_by_the_clock() -> None:
    labels = [text for _, text in time_labels(T0, T0 + 600, T0 + 600, 60, clock=True)]
    assert labels
    assert all(text[2] == ":" and len(text) == 5 for text in labels)
    assert len(time_labels(T0, T0 + 40, T0 + 40, 60, clock=True)[0][1]) == 8


@pytest.mark.parametrize(
    ("span", "step"), [(50, 10), (3600, 900), (86_400, 21_600), (9e5, 259_200)]
)
def test_time_steps_are_those_of_a_clock(span: float, step: float) -> None:
    assert time_step(span, 5) == step


def test_the_end_moves_on_by_whole_pixels() -> None:
    ends = {extent([T0], T0 + 900 + n / 10, 900, 300)[1] for n in range(30)}
    assert len(ends) <= 2
    start, end = extent([T0], T0 + 100, None, 100)
    assert (start, T0 + 100 < end <= T0 + 103) == (T0, True)


@pytest.mark.parametrize("symbols", list(Symbols))
@pytest.mark.parametrize(
    "size", [(10, 3), (1, 1), (2, 2), (24, 4), (80, 24), (200, 50), (0, 0), (5, 40)]
)
def test_any_size_is_drawn_within_its_cells(symbols: Symbols, size: tuple[int, int]) -> None:
    odd = [1.0, math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0]
    marks = [Mark(T0 + n, "日本 note", kind) for n, kind in enumerate(MARKS)]
    grid = compose(
        *size,
        [curve(odd, "日本"), curve([], "none")],
        marks,
        ChartOptions("語" * 9),
        T0 + 7,
        symbols,
    ).grid
    assert (grid.width, grid.height) == size
    assert all(len(row) == size[0] for row in grid.characters)


def test_ascii_draws_with_ascii_alone() -> None:
    marks = [Mark(T0 + 20, "note", "mark"), Mark(T0 + 1, "", "checkpoint")]
    text = picture([curve([1.0, math.nan, 3.0] * 30, "a")], marks=marks, symbols=Symbols.ASCII)
    assert text.isascii()


def test_a_rising_line_rises() -> None:
    rows = picture([curve([float(n) for n in range(100)])], symbols=Symbols.BLOCK).split("\n")[:-1]
    starts = [min(n for n, char in enumerate(row) if char in "▘▖▌▝▀▞▛▗▚▄▙▐▜▟█") for row in rows]
    assert starts == sorted(starts, reverse=True)


def test_infinity_breaks_the_line_and_is_marked_where_it_happened() -> None:
    rows = picture([curve([1.0, 2.0, math.inf, 2.0, 1.0])], span_s=5).split("\n")
    assert rows[-2].count("∞") == 1
    assert "∞" not in "".join(rows[:-2])


def test_without_points_a_sentence_is_shown() -> None:
    assert "No loss yet" in picture([], options=ChartOptions("Loss", empty="No loss yet"))
    assert "Loss" in picture([], options=ChartOptions("Loss"))
    assert picture([], width=10, height=3).strip() == "No data y…"


def test_only_nan_is_drawn_as_marks() -> None:
    assert "×" in picture([curve([math.nan] * 5)], span_s=5)


def test_marks_carry_flag_and_label() -> None:
    marks = [Mark(T0 + 20, "pod-kill", "drill"), Mark(T0 + 60, "attempt 2", "attempt")]
    text = picture([curve([0.0] * 100)], marks=marks)
    assert "D pod-kill" in text
    assert "A attempt 2" in text
    assert text.count("┊") > 10


def test_of_two_marks_in_one_column_the_drill_is_shown() -> None:
    marks = [Mark(T0 + 20, "a", "drill"), Mark(T0 + 20, "b", "checkpoint")]
    top = picture([curve([0.0] * 100)], marks=marks).split("\n")[0]
    assert "D" in top
    assert "C" not in top


def test_many_checkpoints_are_ticks_on_the_time_axis_alone() -> None:
    marks = [Mark(T0 + 5 * n, "", "checkpoint") for n in range(20)]
    text = picture([curve([0.0] * 100)], marks=marks)
    assert "┊" not in text
    assert text.count("┴") > 5


def test_marks_outside_the_window_are_left_out() -> None:
    marks = [Mark(T0 - 500, "old", "drill"), Mark(T0 + 500, "later", "drill")]
    assert "┊" not in picture([curve([0.0] * 100)], marks=marks, options=ChartOptions(window_s=60))


def test_a_legend_counts_the_curves_it_has_no_room_for() -> None:
    curves = [curve([1.0] * 9, f"a rank with a long name {n}") for n in range(6)]
    assert "+5" in picture(curves, width=60).split("\n")[0]


def test_fixed_ends_hold_for_any_values() -> None:
    options = ChartOptions(unit="%", low=0, high=100)
    assert "100%" in picture([curve([50.0] * 100)], options=options)
