"""A time as a user writes it in an argument."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo

from cockpit.model.decoding.value_range import moment_s

_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", re.ASCII)
_CLOCK = re.compile(r"\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
FORMS = "10m, 12:03, 12:03:04, 2026-11-23T12:03:04, or a Unix time"


def parse_time(text: str, now_s: float, zone: tzinfo | None = None) -> float:
    """The Unix time of `10m` (ago), `12:03` (the last one), an ISO date or a Unix time.

    `zone` is that of times without one, by default the local one. Raises ValueError.
    """
    if ago := _AGO.fullmatch(text):
        return moment_s(now_s - float(ago[1]) * _SECONDS[ago[2]])
    if _CLOCK.fullmatch(text):
        today = datetime.fromtimestamp(now_s, zone).date()
        at = _at(f"{today}T{text}", zone)
        if at.timestamp() > now_s:
            at = _at(f"{today - timedelta(days=1)}T{text}", zone)
        return at.timestamp()
    if re.fullmatch(r"\d{9,11}(?:\.\d{1,9})?", text, re.ASCII):
        return moment_s(text)
    try:
        return moment_s(_at(text, zone).timestamp())
    except (OverflowError, OSError) as error:
        raise ValueError(f"{text!r} is out of range") from error


def _at(text: str, zone: tzinfo | None) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=zone)
