"""A limit on the head's disk for the streams of all drivers together."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path

from training.telemetry.settings import OLD_AFTER_S, TOTAL_BYTES

log = logging.getLogger(__name__)


def make_room(
    directory: Path, total_bytes: int = TOTAL_BYTES, old_after_s: float = OLD_AFTER_S
) -> list[Path]:
    """Remove the oldest files of streams until all together have at most `total_bytes`.

    A file that was written to in the last `old_after_s` is kept: its driver may be alive, and then
    renews the time of the newest one (`StreamFile.keep`).
    Returns the removed files, the oldest first.
    """
    found: list[tuple[float, int, Path]] = []
    for path in directory.glob("telemetry-*.jsonl"):
        with suppress(FileNotFoundError):  # its own driver may delete it at the same time
            known = path.stat()
            found.append((known.st_mtime, known.st_size, path))
    held, removed = sum(size for _, size, _ in found), []
    for written_s, size, path in sorted(found):
        if held <= total_bytes or time.time() - written_s < old_after_s:
            break
        path.unlink(missing_ok=True)
        held -= size
        removed.append(path)
    if removed:
        log.info("telemetry: removed %d old files of other drivers", len(removed))
    return removed
