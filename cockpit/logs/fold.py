"""Fold lines that several ranks wrote at about the same time into one row each."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

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
# Each pattern begins with letters, and a lookbehind checks what precedes them: the search skips to
# these letters, which takes half the time of a pattern that begins with another lookaround.
_RANK = re.compile(r"((?:rank|Rank|RANK)(?<![^\W_]....))(?:=|: ?| )\d+")
_PROCESS = re.compile(r"((?:pid|Pid|PID)(?<!\w...))(?:=|: ?| )\d+")
_ADDRESS = re.compile(r"(?:ip=|IP=)(?<!\w...)[\w.:]+")


def without_prefix(text: str) -> str:
    """The text without what Ray's driver and PyTorch write before a line of a rank."""
    if text[:1] in ("(", "[") and (prefix := PREFIX.match(text)):
        return text[prefix.end() :]
    return text


def folding_key(text: str) -> str:
    """The text without what differs between ranks: pid, rank, address, prefix of the driver."""
    text = without_prefix(text)
    if "ank" in text or "ANK" in text:
        text = _RANK.sub(r"\1", text)
    if "id" in text or "ID" in text:
        text = _PROCESS.sub(r"\1", text)
    if "p=" in text or "P=" in text:
        text = _ADDRESS.sub("", text)
    return text.strip()


class _Open(Struct, eq=False):
    entry: Entry
    key: str
    logs: set[int] = field(default_factory=set)
    count: int = 1
    first_error: bool = False

    def takes(self, entry: Entry) -> bool:
        """Whether a line with the same key belongs to this row.

        Of one log, a line that names another rank is another row ("rank 3 failed", "rank 5
        failed"), and so is a line without a time: each line of a traceback stays.
        """
        if entry.log not in self.logs:
            return True
        own = self.entry
        timed = entry.has_time and own.has_time
        return timed and without_prefix(entry.text) == without_prefix(own.text)


def folded(
    entries: Iterable[Entry], logs: Sequence[Log], is_first_error: Callable[[Entry], bool]
) -> Iterator[Row]:
    """Rows in the order of `entries`, which are sorted by time; that of the first error is marked.

    `is_first_error` is asked about each error, in the same order.
    """
    waiting: deque[_Open] = deque()
    by_key: dict[str, list[_Open]] = {}

    def closed() -> Row:
        done = waiting.popleft()
        same = by_key.get(done.key, [])
        if done in same:
            same.remove(done)
            if not same:
                del by_key[done.key]
        writers = tuple(logs[index] for index in sorted(done.logs))
        at_s = None if done.entry.at_s == -math.inf else done.entry.at_s
        return Row(at_s, done.entry.text, done.entry.level, writers, done.count, done.first_error)

    for entry in entries:
        while waiting and (
            entry.at_s > waiting[0].entry.at_s + WITHIN_S or len(waiting) >= OPEN_ROWS
        ):
            yield closed()
        key = folding_key(entry.text)
        same = by_key.setdefault(key, [])
        for row in same:
            if row.takes(entry):
                row.logs.add(entry.log)
                row.count += 1
                break
        else:
            row = _Open(entry, key, {entry.log})
            waiting.append(row)
            if len(same) < SAME_TEXT:
                same.append(row)
        if entry.level == "bad" and is_first_error(entry):
            row.first_error = True
    while waiting:
        yield closed()
