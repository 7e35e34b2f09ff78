"""The telemetry's few numbers. Environment variables so that a job can be tuned without an edit."""

from __future__ import annotations

import os

PUSH_INTERVAL_S = float(os.environ.get("COCKPIT_TELEMETRY_PUSH_S", "1.0"))
"""A rank pushes what it folded at most this often."""

TICK_S = 0.25
"""The aggregator writes what came in at most this often."""

LARGE_TICK_S = 1.0
"""The same for a large world, whose ticks are spreads over all ranks."""

FULL_RANKS = int(os.environ.get("COCKPIT_TELEMETRY_FULL_RANKS", "256"))
"""Up to so many ranks are told in full each time; above it is a large world."""

TURN_RANKS = 64
"""Of a large world so many ranks are told in full each tick, in turn."""

SILENT_AFTER_S = 5.0
"""A rank that gave no record for so long, while others did, is called silent."""

REPORT_RANKS = 64
"""Up to so many ranks a report carries the metrics of each."""

REPORT_RANKS_FEW = 16
"""Of more ranks it carries those of so many."""

DISK_BYTES = int(float(os.environ.get("COCKPIT_TELEMETRY_DISK_MB", "64")) * (1 << 20))
"""What the stream of one driver may hold on the head's disk; older segments go first."""

TOTAL_BYTES = int(float(os.environ.get("COCKPIT_TELEMETRY_TOTAL_MB", "1024")) * (1 << 20))
"""What the streams of all drivers of one Ray session may hold; a new one makes room for itself."""

OLD_AFTER_S = 3600.0
"""A stream that nobody wrote to for so long may go for it."""

SEGMENTS = 8
"""The stream is cut into so many files of equal size, so that the oldest eighth goes at a time."""

METRICS_S = 5.0
"""Gauges are set at most this often; Ray reports them every 10 s."""

FLUSH_TIMEOUT_S = 0.5
"""How long the end of an attempt may wait for the ranks' last numbers: it delays the recovery."""

FINAL_FLUSH_TIMEOUT_S = 2.0
"""How long the end of a run may wait until its last record is in the file."""

SIZE_TIMEOUT_S = 3.0
"""How long a report waits for the size of its checkpoint, which a far storage is asked for."""
