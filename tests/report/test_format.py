from __future__ import annotations

import math

import pytest

from cockpit.report.document import Kind, Value
from cockpit.report.values import instant, shown, since, text


@pytest.mark.parametrize(
    ("value", "kind", "told"),
    [
        (None, Kind.SECONDS, "–"),
        ("", Kind.TEXT, "–"),
        (math.nan, Kind.NUMBER, "NaN"),
        (-math.inf, Kind.BYTES, "-∞"),
        (0.0, Kind.SECONDS, "0.0 s"),
        (0.0352, Kind.SECONDS, "35.2 ms"),
        (245.0, Kind.SECONDS, "4 m 05 s"),
        (4_320.0, Kind.SECONDS, "1 h 12 m"),
        (183_600.0, Kind.SECONDS, "2 d 3 h"),
        (20_000, Kind.COUNT, "20,000"),
        (1_288_490_189, Kind.BYTES, "1.2 GiB"),
        (1_234.5, Kind.RATE, "1.23k/s"),
        (612_000.0, Kind.WATTS, "612 kW"),
        (640.0, Kind.WATTS, "640 W"),
        (93.04, Kind.PERCENT, "93.0 %"),
        (100.0, Kind.PERCENT, "100 %"),
        (0.068491, Kind.NUMBER, "0.06849"),
        (1e-9, Kind.NUMBER, "1e-09"),
        (63.4, Kind.CELSIUS, "63 °C"),
        (1_763_712_080.0, Kind.MOMENT, "08:01:20 (+1 m 20 s)"),
    ],
)
def test_a_value_is_reported_with_its_unit(value: Value, kind: Kind, told: str) -> None:
    assert shown(value, kind, 1_763_712_000.0) == told


def test_a_clock_beyond_all_dates_is_a_dash_and_no_error() -> None:
    assert shown(1e300, Kind.MOMENT, 0.0).startswith("–")
    assert instant(math.nan) == "–"
    assert since(-3.0) == "-3.0 s"


def test_text_is_one_clean_line_that_can_be_written() -> None:
    assert text("a\x1b[31m b\nc\x00 \ud800 \uffff") == "a b c \ufffd \ufffd"
    text("".join(map(chr, range(0x3000)))).encode("utf-8")
