"""Times as users write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cockpit.logs.time_argument import parse_time

NOW = datetime(2026, 11, 23, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("10m", "2026-11-23T11:50:00"),
        ("1.5h", "2026-11-23T10:30:00"),
        ("11:58", "2026-11-23T11:58:00"),
        ("13:00:30", "2026-11-22T13:00:30"),
        ("2026-11-20T01:02:03", "2026-11-20T01:02:03"),
        ("2026-11-20 03:02:03+02:00", "2026-11-20T01:02:03"),
        ("1795435200", "2026-11-23T12:00:00"),
    ],
)
def test_time_of_each_form(text: str, at: str) -> None:
    expected = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
    assert parse_time(text, NOW.timestamp(), UTC) == expected


@pytest.mark.parametrize("text", ["", "soon", "99:99", "999999999d", "-10m", "0000-01-01", "1e99"])
def test_invalid_time_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the messages are datetime's own
        parse_time(text, NOW.timestamp(), UTC)
