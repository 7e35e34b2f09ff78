"""The output of a pod: its `ray start`, and the log files of its raylet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from cockpit.backends.local.files import ClusterFiles, RunFiles
from cockpit.model.text import clean

PERIOD_S = 0.2
READ_BYTES = 1 << 20
TAIL_BYTES = 4 << 20


def paths(files: ClusterFiles, run: RunFiles, pod: str) -> tuple[Path, ...]:
    """The pod's log files, which may not exist yet."""
    logs = run.pod(pod) / "session_latest" / "logs"
    return files.pod_log(pod), logs / "raylet.out", logs / "raylet.err"


async def read(
    files: Sequence[Path], *, follow: bool, lines: int, is_there: Callable[[], bool]
) -> AsyncIterator[str]:
    """The last `lines` of all together; with `follow` also new ones, until the pod is removed."""
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
