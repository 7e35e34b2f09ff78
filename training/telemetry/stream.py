"""The file of a telemetry stream: numbered lines, each flushed, private to the user."""

from __future__ import annotations

import os
from pathlib import Path

from training.telemetry.wire import Body, Record, WireError, decode, encode

_TAIL_BYTES = 4 << 20
"""Enough for the longest line: a tick of some thousands of ranks."""


class StreamFile:
    """Appends records and numbers them; goes on where an earlier writer of the file stopped.

    Raises OSError when the file cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._seq, torn = _last(path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if torn:
            os.write(self._file, b"\n")

    def append(self, t: float, body: Body) -> None:
        line = encode(Record(self._seq + 1, t, body)).encode() + b"\n"
        while line:
            line = line[os.write(self._file, line) :]
        self._seq += 1

    def close(self) -> None:
        os.close(self._file)


def _last(path: Path) -> tuple[int, bool]:
    """The highest number in the file, 0 for a new one, and whether its last line is torn."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            tail = file.read()
    except FileNotFoundError:
        return 0, False
    for line in reversed(tail.splitlines()):
        try:
            record = decode(line)
        except WireError:
            continue
        if record is not None:
            return record.seq, not tail.endswith(b"\n")
    return 0, bool(tail) and not tail.endswith(b"\n")
