"""The names of the telemetry stream's files, and of the callbacks that write it.

They are apart from the records (`wire.py`), whose classes take 13 ms to create: a reader needs
those only when there is a stream.
"""

from __future__ import annotations

import re

FILE_PATTERN = "cockpit/telemetry-*.jsonl"
"""Under the Ray session's log directory, and the pattern for `/api/v0/logs`: the files of each
driver, named after its Ray job id.
"""

CALLBACK = "training.telemetry.callback.TelemetryCallback"
"""A launcher sets the job's RAY_TRAIN_CALLBACKS to this."""

TUNE_CALLBACK = "training.telemetry.tune.TuneTelemetry"
"""A launcher sets the job's RAY_TUNE_CALLBACKS to this."""


def file_name(job: str, segment: int = 0) -> str:
    """Under the log directory, for Ray's hexadecimal job id. Segments are counted from 0."""
    return FILE_PATTERN.replace("*", f"{job}.{segment:06d}" if segment else job)


def segment_of(name: str) -> tuple[str, int] | None:
    """The inverse: the job and the segment; None if the name is not of this stream."""
    found = _FILE.fullmatch(name)
    return (found[1], int(found[2] or 0)) if found else None


_FILE = re.compile(
    re.escape(FILE_PATTERN).replace(r"\*", r"([0-9a-f]+)(?:\.([0-9]{6,9}))?"), re.ASCII
)
