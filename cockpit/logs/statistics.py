"""Leave out the statistics that Ray's processes log every minute, which would hide other lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cockpit.logs.types import Kind

LINES: Mapping[Kind, int] = {Kind.RAYLET: 200, Kind.GCS: 450, Kind.POD: 200}
"""The logs that have statistics, and the most lines that one report has (Ray 2.60: 171 of a raylet,
350 of the GCS). A local pod's output includes the log of its raylet.
"""
_STATE_DUMP = "[state-dump]"
"""In each line of a raylet's report, after the time or alone."""
_HEADS = ("Gcs Debug state:", "Event stats:", "Plasma store debug dump:")
"""The ends of lines that are followed by statistics without a time.
Source: gcs_server.cc, plasma/store.cc.
"""
_TIME = re.compile(r"\[?20\d\d-\d\d-", re.ASCII)
"""The beginning of a line with a time: `[2026-11-23 12:00:00,123 I 1 2]` in Ray's C++ processes."""


class StatisticsFilter:
    """For the lines of one log, in their order."""

    def __init__(self, kind: Kind) -> None:
        # The last lines of a log may begin within statistics; a pod's first lines are its own.
        self._is_inside = kind is not Kind.POD

    def without(self, lines: Iterable[str]) -> list[str]:
        kept = []
        for line in lines:
            if _STATE_DUMP in line:
                self._is_inside = False
                continue
            if _TIME.match(line):
                self._is_inside = line.rstrip().endswith(_HEADS)
            if not self._is_inside:
                kept.append(line)
        return kept
