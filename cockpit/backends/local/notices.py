"""Notices of the operator, one line each, for all watchers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import convert
from msgspec.structs import replace

from cockpit.backends.local.files import ClusterFiles, append_private
from cockpit.model.event import Notice
from cockpit.model.text import one_line

KEPT_BYTES = 256 * 1024
"""A half of the history; the file is moved aside when it is larger."""


class NoticeWriter:
    def __init__(self, files: ClusterFiles, clock: Callable[[], float]) -> None:
        self._files, self._clock = files, clock

    def write(
        self, kind: str, name: str, reason: str, message: str, *, warning: bool = False
    ) -> None:
        line = {
            "at_s": self._clock(),
            "kind": kind,
            "name": name,
            "reason": reason,
            "message": one_line(message),
            "warning": warning,
        }
        path = self._files.events
        try:
            if path.exists() and path.stat().st_size > KEPT_BYTES:
                path.replace(self._files.older_events)
            append_private(path, json.dumps(line))
        except OSError as error:
            # A full disk costs a notice, not the operator and with it the cluster.
            print(f"a notice is lost: {error}: {line}", file=sys.stderr)


class NoticeReader:
    """Reads on where it stopped; the first read gives the last `first` notices."""

    def __init__(self, path: Path, first: int = 100) -> None:
        self._path, self._first = path, first
        self._inode = self._offset = 0

    def read(self) -> tuple[Notice, ...]:
        try:
            with self._path.open("rb") as file:
                # A new file is read from its start: the old one was moved aside.
                if (inode := os.fstat(file.fileno()).st_ino) != self._inode:
                    self._inode, self._offset = inode, 0
                file.seek(self._offset)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return ()
        self._offset += len(whole) + len(newline)
        notices = tuple(_notices(whole))
        first, self._first = self._first, 0
        return notices[-first:] if first else notices


def _notices(lines: bytes) -> Iterator[Notice]:
    for line in lines.splitlines():
        try:
            found = convert(json.loads(line) | {"source": "backend"}, Notice)
        except (KeyError, TypeError, ValueError):
            continue  # torn by a full disk; the next line is complete
        yield replace(found, message=one_line(found.message))
