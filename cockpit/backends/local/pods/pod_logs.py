"""The output of a pod: its `ray start`, and the log files of its raylet.

Beyond the standard library it needs `clean` and `one_line` alone, as `process` does.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from cockpit.model.text import clean, one_line

PERIOD_S = 0.2
READ_BYTES = 1 << 20
TAIL_BYTES = 4 << 20
_RECORD = re.compile(r"^\d{4}-\d\d-\d\d [\d:,]+\s+[A-Z]+ \S+ -- ")
"""What `ray start` puts before each line."""
_SUBPROCESS_ENDED = re.compile(r"\[exit code=")
_EXCEPTION = re.compile(r"^\w*(Error|Exception): ")


def paths(log: Path, directory: Path) -> tuple[Path, ...]:
    """The pod's log files, which may not exist yet: of its `ray start`, and in its directory."""
    logs = directory / "session_latest" / "logs"
    return log, logs / "raylet.out", logs / "raylet.err"


async def read(
    files: Sequence[Path], *, follow: bool, lines: int, is_there: Callable[[], bool]
) -> AsyncIterator[str]:
    """The last `lines` of all together; with `follow` also new ones, until the pod is removed."""
    import asyncio  # a third of the CPU time of every other call to the agent

    followed = [_Followed(path) for path in files]
    before = [
        line for file in followed for line in file.before(torn=not follow) if _is_output(line)
    ]
    for line in before[-lines:] if lines > 0 else ():
        yield clean(line)
    while follow:
        # Checked first, so that everything written before is read.
        going_on = is_there()
        for file in followed:
            for line in filter(_is_output, file.new()):
                yield clean(line)
        if not going_on:
            return
        await asyncio.sleep(PERIOD_S)


def _is_output(line: str) -> bool:
    """Not of the raylet's inner state, which fills a hundred lines each minute."""
    return "[state-dump]" not in line


class _Followed:
    """A growing file, which may not exist yet, read by complete lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def before(self, *, torn: bool) -> list[str]:
        """The available lines, the last one without a newline only if `torn`."""
        try:
            with self._path.open("rb") as file:
                start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
                file.seek(start)
                whole, newline, rest = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._offset = start + len(whole) + len(newline)
        text = whole + newline + (rest if torn else b"")
        return text.decode(errors="replace").splitlines()

    def new(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole, newline, _ = file.read(READ_BYTES).rpartition(b"\n")
        except OSError:
            return []  # not there yet, or removed with its pod
        self._offset += len(whole) + len(newline)
        return whole.decode(errors="replace").split("\n") if newline else []


def how_it_ended(exit_code: int, log: Path) -> str:
    """`killed by SIGKILL`, or the exit code with the most informative line of the log."""
    if exit_code < 0:
        try:
            return f"killed by {signal.Signals(-exit_code).name}"
        except ValueError:
            return f"killed by signal {-exit_code}"
    return f"exited {exit_code}: {last_line(log) or 'its log is empty'}"


def last_line(log: Path) -> str:
    """The most informative line of the log: the dead subprocess, the exception, or the last."""
    lines = [_RECORD.sub("", one_line(line)) for line in tail(log, 400)]
    lines = [line for line in lines if line]
    for telling in (_SUBPROCESS_ENDED, _EXCEPTION):
        if reported := [line for line in lines if telling.search(line)]:
            return reported[-1]
    return lines[-1] if lines else ""


def tail(path: Path, lines: int, limit_bytes: int = 64 * 1024) -> list[str]:
    """The last lines of a file that may be large or missing; not cleaned."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit_bytes))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    whole = text.splitlines()
    return whole[-lines:] if lines > 0 else []
