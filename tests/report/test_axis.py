from __future__ import annotations

import pytest

from cockpit.report.charts.axis import elapsed, time_axis, value_axis
from cockpit.report.charts.timeline import spark
from cockpit.report.document import Chart, Kind, Line


@pytest.mark.parametrize(
    ("low", "high", "kind"),
    [
        (0.03, 2.3, Kind.NUMBER),
        (3e-4, 3e-4, Kind.NUMBER),
        (0.0, 0.0, Kind.PERCENT),
        (-5.0, 12.0, Kind.NUMBER),
        (640_000.0, 640_040.0, Kind.RATE),
        (0.048, 0.052, Kind.SECONDS),
        (97e9, 99e9, Kind.BYTES),
        (1e-12, 1e300, Kind.NUMBER),
    ],
)
def test_an_axis_holds_its_values_and_its_labels_differ(
    low: float, high: float, kind: Kind
) -> None:
    axis = value_axis(low, high, kind)
    assert axis.low <= low <= high <= axis.high
    labels = [label for _, label in axis.ticks]
    assert 2 <= len(labels) <= 12
    assert len(set(labels)) == len(labels), labels


def test_axis_of_a_level_begins_at_zero_and_of_a_distant_rate_does_not() -> None:
    assert value_axis(90.0, 97.0, Kind.PERCENT).low == 0.0
    assert value_axis(1_200.0, 1_300.0, Kind.RATE).low > 1_000
    assert value_axis(200.0, 1_300.0, Kind.RATE).low == 0.0


def test_noise_of_a_ten_thousandth_stays_small() -> None:
    axis = value_axis(640_000.0, 640_040.0, Kind.RATE)
    assert axis.high - axis.low > 100 * 40


def test_a_logarithmic_axis_goes_by_powers() -> None:
    axis = value_axis(0.04, 2.2, Kind.NUMBER, log=True)
    assert axis.log
    assert [label for _, label in axis.ticks] == ["0.01", "0.1", "1", "10"]
    assert axis.part(0.1) - axis.part(0.01) == pytest.approx(axis.part(1.0) - axis.part(0.1))


@pytest.mark.parametrize("seconds", [1.0, 45.0, 388.0, 3_600.0, 90_000.0, 3e6, 1e9])
def test_the_time_axis_has_a_few_round_ticks(seconds: float) -> None:
    labels = [label for _, label in time_axis(0.0, seconds).ticks]
    assert 2 <= len(labels) <= 8
    assert len(set(labels)) == len(labels)


def test_elapsed_time_is_short() -> None:
    reported = [elapsed(seconds) for seconds in (0, 45, 90, 600, 8_100, 90_000, -60)]
    assert reported == ["0", "45 s", "1 m 30 s", "10 m", "2 h 15 m", "1 d 1 h", "-1 m"]


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [(1.0, 1.7e308, True), (5e-324, 1.0, True), (-1e308, 1e308, False), (0.0, 5e-324, False)],
)
def test_values_near_the_limits_of_a_float_have_an_axis(low: float, high: float, log: bool) -> None:
    axis = value_axis(low, high, Kind.NUMBER, log=log)
    assert 1 <= len(axis.ticks) <= 12
    assert 0.0 <= axis.part(low) <= axis.part(high) <= 1.0


def test_bars_of_values_near_the_limits_of_a_float_are_drawn() -> None:
    line = Line("x", [0.0, 0.1, 9.0], [1e308, 1.7e308, -1.7e308])
    assert spark(line, Chart("x", "x", Kind.NUMBER, 0.0, 10.0, (line,)), cells=2) == "█▁"
