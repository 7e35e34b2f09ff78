"""Times, levels and text of lines of every format, and of hostile ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from cockpit.logs.level import level
from cockpit.logs.line import LINE_LIMIT, Line, LineParser

AT_S = datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC).timestamp()
NOW_S = AT_S + 600


def parsed(*lines: str, zone: timezone = UTC) -> list[Line]:
    return list(LineParser(lambda: NOW_S, zone).parse(lines))


@pytest.mark.parametrize(
    ("line", "after_s", "text", "level"),
    [
        ("[2026-11-23 12:00:00,123 I 1 2] (raylet) a.cc:1: up", 0.123, "(raylet) a.cc:1: up", ""),
        ("[2026-11-23 12:00:00,123 E 1 2] lost", 0.123, "lost", "bad"),
        ("2026-11-23 12:00:01,500\tINFO a.py:7 -- up", 1.5, "INFO a.py:7 -- up", ""),
        ("2026-11-23 12:00:01 WARNING slow", 1.0, "WARNING slow", "warning"),
        ("2026-11-23T12:00:00.123456789Z text", 0.123456789, "text", ""),
        ("2026-11-23T14:00:00+02:00 text", 0.0, "text", ""),
        ("I1123 12:00:00.100000   77 kubelet.go:9] up", 0.1, "kubelet.go:9] up", ""),
        ("E20261123 12:00:00.1 7 a.cc:9] lost", 0.1, "a.cc:9] lost", "bad"),
        (
            "[rank3]:[E1123 12:00:02.5 ProcessGroupNCCL.cpp:607] timed out",
            2.5,
            "[rank3]:ProcessGroupNCCL.cpp:607] timed out",
            "bad",
        ),
        (
            "(RayTrainWorker pid=1, ip=10.0.0.3) 2026-11-23 12:00:03,000 INFO a",
            3.0,
            "(RayTrainWorker pid=1, ip=10.0.0.3) INFO a",
            "",
        ),
        ('{"ts": 1795435200.5, "level": "info", "msg": "saved"}', 0.5, "saved", ""),
        ('{"time": "2026-11-23T12:00:04Z", "level": "error", "msg": "x"}', 4.0, "ERROR x", "bad"),
        ('{"asctime": "2026-11-23 12:00:05,250", "message": "y"}', 5.25, "y", ""),
        ('{"timestamp_ns": 1795435201000000000, "message": "z"}', 1.0, "z", ""),
        ('{"ts": 1795435200000, "loss": 2}', 0.0, '{"ts": 1795435200000, "loss": 2}', ""),
    ],
)  # fmt: skip
def test_time_text_and_level_of_each_format(
    line: str, after_s: float, text: str, level: str
) -> None:
    [found] = parsed(line)
    assert found.at_s == pytest.approx(AT_S + after_s, abs=1e-5)
    assert (found.text, found.level, found.has_time) == (text, level, True)


def test_time_without_zone_is_of_the_given_zone() -> None:
    [found] = parsed("2026-11-23 14:00:00 a", zone=timezone(timedelta(hours=2)))
    assert found.at_s == AT_S


def test_klog_line_of_december_read_in_january_is_of_the_year_before() -> None:
    now = datetime(2027, 1, 1, 0, 5, tzinfo=UTC).timestamp()
    [found] = LineParser(lambda: now).parse(["W1231 23:59:00.0 1 a.go:1] slow"])
    assert found.at_s == datetime(2026, 12, 31, 23, 59, tzinfo=UTC).timestamp()


def test_line_without_time_has_that_of_the_line_before_it() -> None:
    lines = parsed("first", "2026-11-23 12:00:00 ERROR", "Traceback", "  File x", "ValueError: y")
    assert [line.at_s for line in lines] == [None, AT_S, AT_S, AT_S, AT_S]
    assert [line.has_time for line in lines] == [False, True, False, False, False]


def test_time_that_goes_back_keeps_the_order_of_the_log() -> None:
    lines = parsed("2026-11-23 12:00:05 a", "2026-11-23 12:00:01 b")
    assert [line.at_s for line in lines] == [AT_S + 5, AT_S + 5]


@pytest.mark.parametrize(
    "line",
    [
        "9999-99-99 99:99:99 x",
        "2999-01-01 00:00:00 x",
        "1970-01-01 00:00:00 x",
        "0000-00-00 00:00:00 x",
        "I9999 99:99:99.9 x",
        "I0230 12:00:00.9 1 x",
        "2026-11-23 12:00:00.999999999999999999 x",
        "٢٠٢٦-١١-٢٣ ١٢:٠٠:٠٠ x",
        '{"ts": 1e300, "msg": "x"}',
        '{"ts": NaN, "msg": "x"}',
        '{"ts": ' + "9" * 5_000 + ', "msg": "x"}',
        '{"ts": true, "time": {}, "msg": "x"}',
        "{" * 10_000 + "}" * 10_000,
        '{"message": ["x"], "levelname": 7}',
        "(pid=" + "1" * 5_000 + ") x",
    ],
)
def test_absurd_time_is_no_time(line: str) -> None:
    assert [found.at_s for found in parsed(line)] == [None]


def test_traceback_of_a_json_line_follows_it() -> None:
    raw = {"ts": AT_S, "levelname": "ERROR", "message": "a\nb", "exc_text": "Traceback\nE: x"}
    lines = parsed(json.dumps(raw))
    assert [line.text for line in lines] == ["ERROR a", "b", "Traceback", "E: x"]
    assert {line.at_s for line in lines} == {AT_S}


def test_control_sequences_are_removed_also_from_json() -> None:
    escaped = json.dumps({"message": "\x1b]0;title\x07red\x1b[31m", "level": "\x1b[1mwarn"})
    assert [line.text for line in parsed("\x1b[31m2026-11-23 12:00:00 a\x1b[0m", escaped)] == [
        "a",
        "WARN red",
    ]


def test_long_line_is_cut_and_torn_json_is_text() -> None:
    long, torn = parsed("x" * 10_000_000, '{"ts": 1795435200, "ms')
    assert (len(long.text), long.text[-1]) == (LINE_LIMIT + 1, "…")
    assert torn.text == '{"ts": 1795435200, "ms'


def test_empty_lines_are_left_out() -> None:
    assert parsed("", " \t", "\x1b[0m") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        *(
            (f"x {word} y", "bad")
            for word in (
                *("ERROR", "CRITICAL", "FATAL", "Traceback", "Segmentation fault", "core dumped"),
                *("OOMKilled", "out of memory", "ValueError", "MyOwnException"),
            )
        ),
        *((f"x {word} y", "warning") for word in ("WARNING", "WARN", "UserWarning")),
        ("MirrorErrors are Warnings of WARNed", ""),
    ],
)
def test_level_of_each_word(line: str, expected: str) -> None:
    assert level(line) == expected
