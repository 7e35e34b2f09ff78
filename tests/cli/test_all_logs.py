"""`cockpit logs --all`: rows as text and as JSON, and what is refused."""

from __future__ import annotations

import argparse
import json
import re
from datetime import UTC, datetime

import pytest

from cockpit.cli.read import all_logs, logs
from cockpit.logs import merge
from cockpit.logs.block import LineFilter
from cockpit.logs.types import Kind, Log, Row
from cockpit.model.error import UsageError

RANKS = tuple(Log(Kind.RANK, f"rank {rank}", rank) for rank in range(3))
TIME = re.compile(r"^\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  ")


def args(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    logs.arguments(parser, "logs")
    return parser.parse_args(argv)


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("1", "--since", "10m"),
        ("1", "-o", "json"),
        ("--all", "--since", "10m", "--around", "12:00"),
        ("--all", "--since", "soon"),
        ("--all", "--previous"),
        ("--all", "--lines", "0"),
        ("1", "--lines", "0"),
        ("1", "--lines", "-5"),
        ("--all", "-f", "-o", "json"),
        ("--all", "--grep", "("),
    ],
)
def test_flags_that_contradict_are_refused(argv: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        logs.run(args(*argv))


def test_text_has_time_writers_count_and_the_mark_of_the_first_error() -> None:
    text = merge.text_of(Row(0.0, "ValueError: x", "bad", RANKS, 6, first_error=True))
    assert TIME.sub("", text) == "ranks 0-2 (6 lines)  >> FIRST ERROR: ValueError: x"
    assert merge.text_of(Row(None, "a", "", RANKS[:1])) == f"{'-' * 18}  rank 0  a"


def test_json_array_is_complete_with_and_without_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [Row(1.5, "a", "", RANKS[:2], 2), Row(None, "b", "bad", RANKS[:1])]
    all_logs._print_rows(iter(rows), "json")
    first, second = json.loads(capsys.readouterr().out)
    assert (first["at_s"], first["ranks"], first["count"]) == (1.5, [0, 1], 2)
    assert (second["at_s"], second["logs"], second["level"]) == (None, ["rank 0"], "bad")
    all_logs._print_rows(iter(()), "json")
    assert json.loads(capsys.readouterr().out) == []


def test_rows_of_later_lines_mark_no_second_first_error() -> None:
    found = merge.Merge(LineFilter(), UTC, 50)
    at = found.add(RANKS[0])
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    found.take_text(at, [f"{now} ERROR one"])
    assert [row.first_error for row in found.rows()] == [True]
    found.take_text(at, [f"{now} ERROR two"])
    assert [(row.text, row.first_error) for row in found.rows()] == [("ERROR two", False)]


def test_the_first_error_is_that_of_all_lines_and_named_when_the_filter_leaves_it_out() -> None:
    found = merge.Merge(LineFilter(re.compile("two")), UTC, 50)
    at = found.add(RANKS[0])
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    found.take_text(at, [f"{day} 00:00:01 ERROR one", f"{day} 00:00:02 ERROR two"])
    assert [(row.text, row.first_error) for row in found.rows()] == [("ERROR two", False)]
    error = found.unshown_error()
    assert error is not None
    assert error.text == "ERROR one"
