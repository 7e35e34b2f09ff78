"""Logs merged by time, equal lines folded, the first error marked."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC

import pytest

from cockpit.logs import fold
from cockpit.logs.block import Block, FirstError, LineFilter, merged
from cockpit.logs.fold import folded
from cockpit.logs.line import Line, LineParser
from cockpit.logs.merge import Merge
from cockpit.logs.types import Kind, Log, Row, ranges

RANKS = tuple(Log(Kind.RANK, f"rank {rank}", rank) for rank in range(4))
DRIVER, RAYLET = Log(Kind.DRIVER, "driver"), Log(Kind.RAYLET, "raylet 10.0.0.1")


def line(at_s: float | None, text: str, level: str = "", *, has_time: bool = True) -> Line:
    return Line(at_s, text, level, has_time and at_s is not None)


def rows(*written: tuple[Log, Sequence[Line]]) -> list[Row]:
    blocks, first = [], FirstError()
    for index, (log, lines) in enumerate(written):
        blocks.append(block(lines))
        for one in lines:
            first.see(index, log, one)
    found = folded(merged(blocks), [log for log, _ in written], lambda entry: entry == first.entry)
    return list(found)


def block(lines: Sequence[Line]) -> Block:
    """A block of lines that are parsed already."""
    waiting = iter(lines)
    made = Block(lambda texts: (next(waiting) for _ in texts))
    made.add([b""] * len(lines))
    made.parse()
    return made


def test_lines_of_all_logs_are_in_order_of_time() -> None:
    found = rows(
        (RANKS[0], [line(1.0, "a"), line(4.0, "d")]),
        (RANKS[1], [line(2.0, "b"), line(3.0, "c")]),
        (DRIVER, [line(None, "start"), line(2.5, "x")]),
    )
    assert [(row.at_s, row.text) for row in found] == [
        (None, "start"),
        (1.0, "a"),
        (2.0, "b"),
        (2.5, "x"),
        (3.0, "c"),
        (4.0, "d"),
    ]


def test_equal_lines_of_ranks_and_of_the_driver_are_one_row() -> None:
    [row] = rows(
        *((log, [line(10.0 + log.rank, f"[rank{log.rank}]: pid={log.rank} ready")])
          for log in RANKS if log.rank is not None),
        (DRIVER, [line(11.0, "(RayTrainWorker pid=7, ip=10.0.0.3) pid=7 ready")]),
    )  # fmt: skip
    assert (row.ranks, row.count, row.at_s) == ((0, 1, 2, 3), 5, 10.0)
    assert row.writers == "ranks 0-3, driver"


def test_equal_lines_more_than_seconds_apart_are_two_rows() -> None:
    found = rows((RANKS[0], [line(1.0, "a"), line(2.0, "a"), line(1.0 + fold.WITHIN_S + 2, "a")]))
    assert [(row.at_s, row.count) for row in found] == [(1.0, 2), (1.0 + fold.WITHIN_S + 2, 1)]


def test_lines_that_differ_by_more_than_rank_and_pid_are_not_folded() -> None:
    found = rows((RANKS[0], [line(1.0, "loss 1")]), (RANKS[1], [line(1.0, "loss 2")]))
    assert [row.text for row in found] == ["loss 1", "loss 2"]


def test_each_line_of_a_traceback_stays_and_is_folded_across_ranks() -> None:
    traceback = [line(1.0, "ERROR", "bad")] + [
        line(1.0, text, has_time=False) for text in ("Traceback", " f()", " f()", "ValueError")
    ]
    found = rows((RANKS[0], traceback), (RANKS[1], traceback))
    assert [row.text for row in found] == [one.text for one in traceback]
    assert {row.ranks for row in found} == {(0, 1)}


def test_first_error_of_the_application_is_marked_and_not_that_of_a_raylet() -> None:
    found = rows(
        (RAYLET, [line(1.0, "metrics agent is absent", "bad")]),
        (RANKS[2], [line(3.0, "late", "bad")]),
        (RANKS[1], [line(2.0, "first", "bad")]),
    )
    assert [row.text for row in found if row.first_error] == ["first"]


def test_an_error_without_a_time_is_first_only_where_none_has_one() -> None:
    untimed = (DRIVER, [line(None, "ERROR of no time", "bad")])
    found = rows(untimed, (RANKS[1], [line(2.0, "ERROR at 2", "bad")]))
    assert [row.text for row in found if row.first_error] == ["ERROR at 2"]
    assert [row.first_error for row in rows(untimed)] == [True]


def test_first_rows_need_few_lines_of_each_log(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    plain = LineParser._plain

    def counted(parser: LineParser, text: str) -> Line:
        parsed.append(text)
        return plain(parser, text)

    monkeypatch.setattr(LineParser, "_plain", counted)
    merge = Merge(LineFilter(), UTC, 1_000)
    for log in RANKS:
        merge.take_text(
            merge.add(log), [f"{timed(second)} {log.rank} at {second}" for second in range(1_000)]
        )
    found = merge.rows()
    assert [next(found).text for _ in RANKS] == [f"{log.rank} at 0" for log in RANKS]
    assert len(parsed) <= len(RANKS) * (fold.WITHIN_S + 3)
    assert len(list(found)) == len(RANKS) * 999


def test_error_without_a_time_is_not_marked_if_a_later_line_is_an_error_with_one() -> None:
    stderr, timed_log = ["Traceback", "ValueError"], [timed(0), f"{timed(1)} ERROR at 1"]
    assert first_error(stderr, timed_log) == "ERROR at 1"
    assert first_error(stderr, [timed(0), f"{timed(1)} well"]) == "Traceback"
    assert first_error(stderr, []) == "Traceback"


def test_first_error_of_one_time_is_that_of_the_first_log() -> None:
    at = timed(7)
    assert first_error([f"{at} well", f"{at} ERROR of 0"], [f"{at} ERROR of 1"]) == "ERROR of 0"


def test_lines_of_a_json_object_stay_together_if_only_the_first_was_parsed() -> None:
    record = {"asctime": timed(3), "levelname": "ERROR", "message": "ERROR a\nb\nc"}
    merge = Merge(LineFilter(), UTC, 50)
    merge.take_text(merge.add(RANKS[0]), ["untimed ERROR", json.dumps(record), "after it"])
    texts = [row.text for row in merge.rows()]
    assert texts == ["untimed ERROR", "ERROR ERROR a", "b", "c", "after it"]


def test_lines_that_are_no_text_are_shown_with_replacements() -> None:
    merge = Merge(LineFilter(), UTC, 50)
    merge.take(merge.add(RANKS[0]), [b"loss \xff", b"", b"\x85 next"])
    assert [row.text for row in merge.rows()] == ["loss \ufffd", "\ufffd next"]


def timed(second: int) -> str:
    return f"2026-11-24 12:{second // 60:02}:{second % 60:02}"


def first_error(*logs: Sequence[str]) -> str:
    merge = Merge(LineFilter(), UTC, 50)
    for log, lines in zip(RANKS, logs, strict=False):
        merge.take_text(merge.add(log), lines)
    [row] = [row for row in merge.rows() if row.first_error]
    return row.text


def test_lines_of_one_log_that_name_different_ranks_are_not_folded() -> None:
    found = rows((DRIVER, [line(1.0, "rank 3 failed"), line(1.1, "rank 5 failed")]))
    assert [row.text for row in found] == ["rank 3 failed", "rank 5 failed"]
    prefixed = [line(1.0, f"(RayTrainWorker pid={pid}) loss 1") for pid in (7, 8)]
    assert [row.count for row in rows((DRIVER, prefixed))] == [2]


def test_number_of_open_rows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "OPEN_ROWS", 10)
    found = rows((RANKS[0], [line(1.0, f"line {number}") for number in range(1_000)]))
    assert [row.text for row in found] == [f"line {number}" for number in range(1_000)]


def test_no_line_is_lost_when_one_text_repeats_without_a_time() -> None:
    lines = [line(1.0, "same", has_time=False) for _ in range(fold.SAME_TEXT * 2)]
    assert sum(row.count for row in rows((RANKS[0], lines))) == len(lines)


def test_half_characters_are_replaced() -> None:
    [row] = rows((RANKS[0], [line(1.0, "a\ud800")]))
    assert row.text == "a?"


@pytest.mark.parametrize(
    ("kept", "texts"),
    [
        (LineFilter(), ["no time", "a", "b", "c"]),
        (LineFilter(pattern=re.compile("[ab]$")), ["a", "b"]),
        (LineFilter(since_s=2.0), ["b", "c"]),
        (LineFilter(since_s=1.5, until_s=2.5), ["b"]),
    ],
)
def test_filter_keeps_lines_by_pattern_and_time(kept: LineFilter, texts: list[str]) -> None:
    lines = [line(None, "no time"), line(1.0, "a"), line(2.0, "b"), line(3.0, "c")]
    assert [one.text for one in kept.kept(lines)] == texts


@pytest.mark.parametrize(("pattern", "count"), [(None, 2), (re.compile("Global|lease"), 2)])
def test_statistics_of_a_raylet_are_left_out_without_a_pattern(
    pattern: re.Pattern[str] | None, count: int
) -> None:
    merge = Merge(LineFilter(pattern), UTC, 50)
    at = "[2026-11-24 12:00:00,000 I 1 1]"
    merge.take_text(
        merge.add(RAYLET), [f"{at} [state-dump] Global stats: 9 total", f"{at} lease lost"]
    )
    merge.take_text(merge.add(RANKS[0]), [f"{at} prints [state-dump] itself"])
    shown = [row.text for row in merge.rows()]
    assert len(shown) == count
    assert any("Global" in text for text in shown) is (pattern is not None)


def test_only_the_last_lines_of_a_raylet_are_shown_if_it_has_few_statistics() -> None:
    merge = Merge(LineFilter(), UTC, 2)
    at = merge.add(RAYLET)
    time, last = "[2026-11-24 12:00:00,000 I 1 1]", merge.tail_lines(RAYLET) - 1
    read = [f"{time} line {number}" for number in range(last)]
    merge.take_text(at, read[:100])
    merge.take_text(at, [*read[100:], "[state-dump] Global stats: 9 total"])
    assert [row.text for row in merge.rows()] == [f"line {last - 2}", f"line {last - 1}"]
    merge.take_text(at, ["new 1", "new 2", "new 3"])
    assert [row.text for row in merge.rows()] == ["new 1", "new 2", "new 3"]


REPORT = """\
- objects evictable: 0
[2026-11-25 16:43:06,934 I 1 1] (gcs_server) gcs_server.cc:1307: Gcs Debug state:

GcsNodeManager:
- RegisterNode request count: 4
[2026-11-25 16:43:06,934 W 1 1] (gcs_server) recorder.cc:67: Failed to export metrics
  to the agent
[2026-11-25 16:43:06,934 I 1 1] (gcs_server) gcs_server.cc:1326: io_context Event stats:


Global stats: 3905 total (0 active)
[state-dump] NodeManager:
a line of another program
[2026-11-25 16:43:07,000 I 1 1] (raylet) store.cc:573: Plasma store debug dump:
Current usage: 0 / 0.15 GB
"""


@pytest.mark.parametrize(
    ("kind", "first"), [(Kind.GCS, []), (Kind.RAYLET, []), (Kind.POD, ["- objects evictable: 0"])]
)
def test_statistics_without_a_time_are_left_out(kind: Kind, first: list[str]) -> None:
    merge = Merge(LineFilter(), UTC, 50)
    lines = REPORT.splitlines()
    at = merge.add(Log(kind, "one"))
    merge.take_text(at, lines[:4])
    merge.take_text(at, lines[4:])
    shown = [row.text for row in merge.rows()]
    failed = "(gcs_server) recorder.cc:67: Failed to export metrics"
    assert shown == [*first, failed, "  to the agent", "a line of another program"]


def test_ranges_of_ranks() -> None:
    assert ranges((0, 1, 2, 5, 7, 8)) == "0-2, 5, 7-8"


def test_a_block_takes_little_more_than_its_text() -> None:
    made = block([line(float(number), "x" * 100) for number in range(10_000)])
    parts = (made._text, made._ends, made._times, made._flags)
    assert sum(map(sys.getsizeof, parts)) < 10_000 * 140
