from __future__ import annotations

import math

import pytest

from cockpit import format


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (-2, "0 s"), (3.9, "3 s"), (125, "2 m"), (7300, "2 h"), (200_000, "2 d")],
)
def test_an_age_is_reported_in_one_unit(seconds: float | None, text: str) -> None:
    assert format.age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0.0 s"),
        (0.000_02, "20 µs"),
        (0.035, "35 ms"),
        (18.5, "18.5 s"),
        (59.97, "1 m 00 s"),
        (245, "4 m 05 s"),
        (4320, "1 h 12 m"),
        (183_600, "2 d 3 h"),
        (-0.4, "-400 ms"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
    ],
)
def test_a_duration_keeps_what_matters(seconds: float | None, text: str) -> None:
    assert format.duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "–"), (0, "0 B"), (512, "512 B"), (1288490189, "1.2 GiB"), (1023, "1.0 KiB")],
)
def test_bytes_are_binary(size: float | None, text: str) -> None:
    assert format.bytes_text(size) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (1234.5, "1.23k"),
        (999.9, "1k"),
        (0.0012, "1.2m"),
        (-25_000_000, "-25M"),
        (1e20, "100000P"),
        (math.nan, "NaN"),
        (-math.inf, "-∞"),
    ],
)
def test_si_prefixes(value: float | None, text: str) -> None:
    assert format.si(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0.0, "0"), (2.30258, "2.303"), (0.01, "0.01000"), (1e-9, "1.000e-09")],
)
def test_a_number_keeps_its_significant_digits(value: float | None, text: str) -> None:
    assert format.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(150.0, "150"), (1.5, "1.500"), (math.nan, "NaN"), (None, "–"), (0.0, "0")]
)
def test_a_reported_whole_number_has_no_decimals(value: float | None, text: str) -> None:
    assert format.reported(value) == text


def test_what_is_not_known_is_never_zero() -> None:
    unknown = [format.rate(None), format.percent(None), format.count(None)]
    assert unknown == ["–", "–", "–"]


def test_rates_percents_and_counts() -> None:
    assert format.rate(1234.5) == "1.23k/s"
    assert format.percent(61.6) == "62 %"
    assert format.count(20_000) == "20,000"


def test_the_screen_the_cli_and_the_report_show_a_duration_alike() -> None:
    from cockpit.report.document import Kind
    from cockpit.report.values import shown

    for seconds in (0.0004, 0.035, 18.46, 59.97, 125.0, 5_385.0, 200_000.0):
        assert shown(seconds, Kind.SECONDS) == format.duration(seconds)
    assert format.duration(5_385.0) == "1 h 29 m"


def test_plurals_and_lists_of_ranks() -> None:
    assert [format.plural(count, "step") for count in (0, 1, 2, 20_000)] == [
        "0 steps",
        "1 step",
        "2 steps",
        "20,000 steps",
    ]
    assert format.plural(0.5, "CPU") == "0.5 CPUs"
    assert format.ranks([3]) == "rank 3"
    assert format.ranks([5, 1, 2]) == "ranks 1, 2, 5"
    assert format.ranks(range(40), most=2) == "ranks 0, 1, … (40)"
