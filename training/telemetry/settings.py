"""The settings of the telemetry, as environment variables, so that a job can be tuned unchanged."""

from __future__ import annotations

import os

PUSH_INTERVAL_S = float(os.environ.get("COCKPIT_TELEMETRY_PUSH_S", "1.0"))
"""The minimum interval between two pushes of a rank."""

TICK_S = 0.25
"""How often the aggregator looks for stale ranks, for hangs, and for space on a full disk."""

LARGE_TICK_S = 1.0
"""The minimum interval between two ticks of a large world, which are spreads over all ranks."""

FULL_RANKS = int(os.environ.get("COCKPIT_TELEMETRY_FULL_RANKS", "256"))
"""The maximum number of ranks that are written in full each tick; more ranks are a large world."""

TURN_RANKS = 64
"""The number of ranks of a large world that are written in full in a tick; they alternate."""

SILENT_AFTER_S = 5.0
"""A rank that sent no record for this time, while others did, is reported as stale."""

REPORT_RANKS = 64
"""Up to this number of ranks, a report contains the metrics of each rank."""

REPORT_RANKS_FEW = 16
"""Of more ranks it contains those of this many."""

DISK_BYTES = int(float(os.environ.get("COCKPIT_TELEMETRY_DISK_MB", "64")) * (1 << 20))
"""The limit for the stream of one driver on the head's disk; older segments are deleted first."""

TOTAL_BYTES = int(float(os.environ.get("COCKPIT_TELEMETRY_TOTAL_MB", "1024")) * (1 << 20))
"""The limit for the streams of all drivers of one Ray session; a new one frees space for itself."""

OLD_AFTER_S = 3600.0
"""A stream that was not written to for this time may be deleted for it."""

SEGMENTS = 8
"""The number of equally sized files of a stream: the oldest eighth is deleted at a time."""

METRICS_S = 5.0
"""The minimum interval between updates of the gauges; Ray exports them every 10 s."""

FLUSH_TIMEOUT_S = 0.5
"""How long the end of an attempt may wait for the ranks' last numbers: it delays the recovery."""

FINAL_FLUSH_TIMEOUT_S = 2.0
"""How long the end of a run may wait until its last record is in the file."""

SIZE_TIMEOUT_S = 3.0
"""How long a report waits for the size of its checkpoint, which a remote storage must return."""
