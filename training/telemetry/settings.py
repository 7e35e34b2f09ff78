"""The telemetry's few numbers. Environment variables so that a job can be tuned without an edit."""

from __future__ import annotations

import os

PUSH_INTERVAL_S = float(os.environ.get("COCKPIT_TELEMETRY_PUSH_S", "1.0"))
"""A rank pushes what it folded at most this often."""

TICK_S = 0.25
"""The aggregator writes what came in at most this often."""

FLUSH_TIMEOUT_S = 0.5
"""How long the end of an attempt may wait for the ranks' last numbers: it delays the recovery."""

LAST_WORD_TIMEOUT_S = 2.0
"""How long the end of a run may wait until its last record is in the file."""
