"""Which lines of cockpit/ the quick lane runs, measured by SlipCover.

SlipCover's probes remove themselves once a line was reached. The tracer of coverage.py tripled the
CPU time of tests of plain Python (Python 3.11): of the tests of insight and of the ranks view, 22 s
became 73 s.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

LEAST_PERCENT = 88.0


def start() -> None:
    """Let SlipCover's plugin measure: it reads these variables in each process that runs tests."""
    os.environ["SLIPCOVER_ENABLED"] = "1"
    os.environ["SLIPCOVER_SOURCE"] = str(Path(__file__).parent.parent / "cockpit")


def percent() -> float | None:
    """The lines that were run, of all processes together; None when it was not measured."""
    merged = _directory() / "merged.json"
    if not merged.exists():
        return None
    return float(json.loads(merged.read_text())["summary"]["percent_covered"])


def end() -> None:
    """Remove what the processes wrote."""
    if _directory().is_absolute():
        shutil.rmtree(_directory(), ignore_errors=True)


def _directory() -> Path:
    return Path(os.environ.get("SLIPCOVER_COVERAGE_DIR", "not-measured"))
