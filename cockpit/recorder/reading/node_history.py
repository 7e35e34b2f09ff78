"""The incidents by node of all recorded runs of a cluster."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from cockpit.insight.nodes.incident import EVENTS, RunIncidents, read
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.recorder.reading.library import Library, Recorded
from cockpit.recorder.reading.recording import Recording

MOST_RUNS = 500
"""Recordings that are read, the newest first."""


class NodeHistory:
    """Reads each recording once, and again when it has changed. May be used from any thread."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._read: dict[Path, tuple[tuple[float, int], RunIncidents]] = {}
        self._lock = threading.Lock()

    def of(self, ref: ClusterRef) -> list[RunIncidents]:
        """Return those of the cluster. A recording that cannot be read is left out."""
        cluster = ref.backend, ref.namespace, ref.name
        with self._lock:
            read = {}
            for row in self._library.list()[:MOST_RUNS]:
                stamp = row.end_s, row.size_bytes
                cached = self._read.get(row.path)
                if cached is not None and cached[0] == stamp:
                    read[row.path] = cached
                elif not row.trouble and (found := _incidents(row)) is not None:
                    read[row.path] = stamp, found
            self._read = read
            return [found for _, found in read.values() if found.cluster == cluster]


def _incidents(row: Recorded) -> RunIncidents | None:
    try:
        with Recording.open(row.path) as recording:
            return read(recording.of_kinds(*EVENTS))
    except (CockpitError, OSError, sqlite3.Error):
        return None  # deleted or damaged since it was listed: `cockpit recordings` shows why
