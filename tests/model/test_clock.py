"""The clock of this host, corrected by what servers answer."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from cockpit.model.clock import ServerClock

NOW_S = 1_800_000_000.0


def clock(ahead_s: float) -> ServerClock:
    """Of a host whose clock is ahead of the server's, which shows NOW_S."""
    return ServerClock(lambda: NOW_S + ahead_s)


@pytest.mark.parametrize("ahead_s", [-1.5, 0.0, 0.9, 2.5])
def test_a_clock_that_is_nearly_right_stays_as_it_is(ahead_s: float) -> None:
    found = clock(ahead_s)
    found.correct(formatdate(NOW_S, usegmt=True), took_s=0.1)
    assert found.offset_s == 0.0


@pytest.mark.parametrize("ahead_s", [-3600.0, 3600.0, 60.0])
def test_a_clock_that_is_wrong_is_corrected_to_the_second(ahead_s: float) -> None:
    found = clock(ahead_s)
    found.correct(formatdate(NOW_S, usegmt=True), took_s=0.1)
    assert found() == pytest.approx(NOW_S, abs=1.0)


def test_an_answer_that_took_long_corrects_only_what_it_shows() -> None:
    found = clock(20.0)
    found.correct(formatdate(NOW_S, usegmt=True), took_s=30.0)
    assert found.offset_s == 0.0, "the server may have answered 30 s ago"


def test_a_correction_follows_a_clock_that_is_set_back() -> None:
    wall_s = [NOW_S + 3600.0]
    found = ServerClock(lambda: wall_s[0])
    found.correct(formatdate(NOW_S, usegmt=True), took_s=0.1)
    before = found.offset_s
    wall_s[0] += 10.0
    found.correct(formatdate(NOW_S + 10.0, usegmt=True), took_s=0.1)
    assert found.offset_s == before, "it does not follow the jitter of answers"
    wall_s[0] -= 3600.0
    found.correct(formatdate(NOW_S + 10.0, usegmt=True), took_s=0.1)
    assert found.offset_s == 0.0


@pytest.mark.parametrize(
    "date",
    [
        None,
        "",
        "yesterday",
        "Mon, 99 Foo 2026 00:00:00 GMT",
        "Mon, 99999999999999999999 Jan 2026 00:00:00 GMT",
        "Mon, 05 Jan 2026 00:00:00 +99999999999999999999",
        "Mon, 01 Jan 0001 00:00:00 -0000",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ],
)
def test_a_header_that_is_missing_or_wrong_changes_nothing(date: str | None) -> None:
    found = clock(3600.0)
    found.correct(date, took_s=0.1)
    assert found.offset_s == 0.0
