"""Fold lines that several ranks wrote at about the same time into one row each."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from cockpit.logs.block import Entry
from cockpit.logs.line import PREFIX
from cockpit.logs.types import Log, Row

WITHIN_S = 5.0
"""From the first line of a row: an equal line later than this begins another row."""
OPEN_ROWS = 20_000
"""Rows that wait for more of their lines. Bounds the memory and the delay."""
SAME_TEXT = 64
"""Open rows of one text that take lines; a hostile log has any number of them."""
_VARYING = re.compile(
    r"\b((?:world_|local_|node_|global_)?rank|pid)(?:=|: ?| )\d+|\bip=[\w.:]+", re.IGNORECASE
)


def folding_key(text: str) -> str:
    """The text without what differs between ranks: pid, rank, address, prefix of the driver."""
    if text[:1] in ("(", "[") and (prefix := PREFIX.match(text)):
        text = text[prefix.end() :]
    if "=" in text or "ank" in text or "ANK" in text or "pid" in text:
        text = _VARYING.sub(r"\1", text)
    return text.strip()


class _Open(Struct, eq=False):
    entry: Entry
    key: str
    logs: set[int] = field(default_factory=set)
    count: int = 1


def folded(
    entries: Iterable[Entry], logs: Sequence[Log], *, has_error: bool = False
) -> Iterator[Row]:
    """Rows in the order of `entries`, which are sorted by time.

    A line without a time of its own, as of a traceback, is folded only with lines of other logs:
    each line of the traceback stays. The first error of a rank, driver or controller is marked,
    unless `has_error`: rows before these had it.
    """
    waiting: deque[_Open] = deque()
    by_key: dict[str, list[_Open]] = {}
    marked = has_error

    def closed() -> Row:
        nonlocal marked
        done = waiting.popleft()
        same = by_key.get(done.key, [])
        if done in same:
            same.remove(done)
            if not same:
                del by_key[done.key]
        writers = tuple(logs[index] for index in sorted(done.logs))
        first_error = (
            not marked
            and done.entry.level == "bad"
            and any(log.kind.is_application for log in writers)
        )
        marked = marked or first_error
        at_s = None if done.entry.at_s == -math.inf else done.entry.at_s
        return Row(at_s, done.entry.text, done.entry.level, writers, done.count, first_error)

    for entry in entries:
        while waiting and (
            entry.at_s > waiting[0].entry.at_s + WITHIN_S or len(waiting) >= OPEN_ROWS
        ):
            yield closed()
        key = folding_key(entry.text)
        same = by_key.setdefault(key, [])
        for row in same:
            if entry.log not in row.logs or (entry.has_time and row.entry.has_time):
                row.logs.add(entry.log)
                row.count += 1
                break
        else:
            row = _Open(entry, key, {entry.log})
            waiting.append(row)
            if len(same) < SAME_TEXT:
                same.append(row)
    while waiting:
        yield closed()
