"""Lines of logs of unknown form: their time, their level, and their text without the time.

Formats: Ray's C++ processes (`[2026-11-23 12:00:00,123 I 1 2]`), Python's logging, RFC 3339 as
Kubernetes writes it, klog and glog (`I1123 12:00:00.1`), PyTorch's `[rank3]:[E1123 12:00:00.1 …]`,
JSON objects as Ray Train and structlog write them, each also after the prefix of Ray's driver,
`(RayTrainWorker pid=1, ip=10.0.0.3)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any

from msgspec import Struct

from cockpit.logs.level import level
from cockpit.model.decoding import limited_json
from cockpit.model.text import clean

LINE_LIMIT = 16 * 1024
"""Characters of a line that are kept."""
JSON_LINES = 200
"""Lines of one JSON object: of its message and its traceback."""
EARLIEST_S = 946_684_800.0
"""The year 2000: an earlier time is no time of a log, but a clock that is not set."""
AHEAD_S = 3600.0
"""How much later than now a time may be: the clocks of nodes differ."""
SECONDS_CACHED = 10_000

PREFIX = re.compile(
    r"(?:\([^()]{0,200}?\bpid=\d{1,10}[^()]{0,200}\) ?)?(?:\[rank ?\d{1,9}\]:? ?)?",
    re.IGNORECASE | re.ASCII,
)
"""What Ray's driver and PyTorch write before a line of a rank. It may match nothing."""
_ISO = re.compile(
    r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
    r"(?: ([DIWEFC])(?: \d{1,10}){1,2})?(?:\]:? ?|[ \t]+|$)",
    re.ASCII,
)
_KLOG = re.compile(
    r"\[?([IWEF])(\d{4})?(\d{4}) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?: +\d{1,10}(?= ))?(?:[ \t]+|$)",
    re.ASCII,
)
_LETTERS = {"E": "bad", "F": "bad", "C": "bad", "W": "warning"}
_TIME_KEYS = ("timestamp_ns", "ts", "time", "timestamp", "@timestamp", "asctime", "created")
_LEVEL_KEYS = ("levelname", "level", "severity", "lvl")
_TEXT_KEYS = ("message", "msg", "event")
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""From which number on a Unix time is in nanoseconds, microseconds or milliseconds."""


class Line(Struct, frozen=True):
    at_s: float | None
    text: str
    level: str
    has_time: bool
    """Whether `at_s` is in the line itself, and not that of a line before it."""


class LineParser:
    """The lines of one log, in order. `zone` is that of times without one.

    A line without a time has that of the line before it, so that a traceback stays together. No
    line is earlier than the one before it: a merge by time keeps the order of each log. Empty lines
    are left out.
    """

    def __init__(self, clock: Callable[[], float], zone: tzinfo = UTC) -> None:
        self._clock, self._zone = clock, zone
        self._latest_s = clock() + AHEAD_S
        self._last_s: float | None = None

    def parse(self, lines: Iterable[str]) -> Iterator[Line]:
        self._latest_s = self._clock() + AHEAD_S
        for raw in lines:
            text = clean(raw[:LINE_LIMIT])
            if not text.strip():
                continue
            if len(raw) > LINE_LIMIT:
                text += "…"
            if text.startswith("{") and text.endswith("}"):
                found = self._json(text)
                if found is not None:
                    yield from found
                    continue
            yield self._plain(text)

    def _plain(self, text: str) -> Line:
        prefix = PREFIX.match(text)
        start = prefix.end() if prefix else 0
        if iso := _ISO.match(text, start):
            at_s = self._moment(iso[1], iso[2], iso[3])
            letter, end = iso[4], iso.end()
        elif klog := _KLOG.match(text, start):
            letter, year, day, clock, fraction = klog.groups()
            at_s, end = self._klog(year, day, clock, fraction), klog.end()
        else:
            return self._line(None, text, level(text))
        if at_s is None:
            return self._line(None, text, level(text))
        # In Ray's and Google's formats the letter is the level, even if the text quotes another.
        rest = text[:start] + text[end:]
        return self._line(at_s, rest, _LETTERS.get(letter, "") if letter else level(rest))

    def _json(self, text: str) -> list[Line] | None:
        try:
            fields = limited_json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(fields, dict):
            return None
        at_s = next((s for key in _TIME_KEYS if (s := self._value_s(fields.get(key)))), None)
        message = next((fields[key] for key in _TEXT_KEYS if _is_text(fields.get(key))), None)
        if message is None:
            return [self._line(at_s, text, level(text))]
        name = next((fields[key] for key in _LEVEL_KEYS if _is_text(fields.get(key))), "")
        name = clean(" ".join(name[:20].split())).upper()
        traceback = fields.get("exc_text")
        texts = message.splitlines() or [""]
        if isinstance(traceback, str):
            texts += traceback.splitlines()
        texts = [clean(part)[:LINE_LIMIT] for part in texts[:JSON_LINES]]
        if name not in ("", "INFO"):
            texts[0] = f"{name} {texts[0]}"
        first = self._line(at_s, texts[0], level(texts[0]))
        return [first, *(self._line(None, part, level(part)) for part in texts[1:])]

    def _line(self, at_s: float | None, text: str, found: str) -> Line:
        if at_s is not None and (self._last_s is None or at_s > self._last_s):
            self._last_s = at_s
        return Line(self._last_s, text, found, at_s is not None)

    def _moment(self, second: str, fraction: str | None, zone: str | None) -> float | None:
        at_s = _unix_s(second, zone, self._zone)
        if at_s is None:
            return None
        return self._plausible(at_s + (int(fraction) / 10 ** len(fraction) if fraction else 0.0))

    def _klog(self, year: str | None, day: str, clock: str, fraction: str | None) -> float | None:
        if year:
            return self._moment(f"{year}-{day[:2]}-{day[2:]} {clock}", fraction, None)
        # klog writes no year: this one, or the one before for a day that has not been yet.
        this = datetime.fromtimestamp(self._latest_s, self._zone).year
        for guess in (this, this - 1):
            at_s = self._moment(f"{guess:04}-{day[:2]}-{day[2:]} {clock}", fraction, None)
            if at_s is not None:
                return at_s
        return None

    def _value_s(self, value: Any) -> float | None:
        """A time of a JSON object: a Unix time in any unit, or text."""
        if isinstance(value, bool):
            return None
        if isinstance(value, int | float):
            try:
                number = float(value)
            except OverflowError:
                return None
            return self._plausible(
                number / next((unit for least, unit in _UNITS if number >= least), 1.0)
            )
        if isinstance(value, str) and (iso := _ISO.match(value[:64])):
            return self._moment(iso[1], iso[2], iso[3])
        return None

    def _plausible(self, at_s: float) -> float | None:
        return at_s if EARLIEST_S <= at_s <= self._latest_s else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


@lru_cache(SECONDS_CACHED)  # lines of all logs: a cache in each took 100 MB for 1,000 logs
def _unix_s(second: str, zone: str | None, default: tzinfo) -> float | None:
    try:
        at = datetime.fromisoformat(second + (zone or ""))
        return (at if at.tzinfo else at.replace(tzinfo=default)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
