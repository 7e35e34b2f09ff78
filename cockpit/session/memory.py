"""Python's collector and glibc's allocator, set for a process that runs for days."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""malloc.h of glibc."""
ARENAS = 2
LARGE_BYTES = 64 * 1024
THRESHOLDS = (1_000, 5, 5)
TIDY_EVERY_S = 60.0


def set_allocator() -> None:
    """Make glibc's allocator return memory. Call this before the first thread starts.

    By default glibc creates up to 8 arenas per core, and memory that is freed in one is not used by
    another: each thread that reads a file or a recording leaves an arena behind. Python's threads
    alternate, so that ARENAS shared arenas are enough.

    By default the first response of 20 MB also raises the size from which a block is mapped
    separately to 20 MB. From then on large responses are in the heap, and small blocks that outlive
    them keep it from shrinking: 5 MB of 77 MB with a cluster of three pods. So the size is fixed at
    LARGE_BYTES.

    Without glibc this does nothing.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_ARENA_MAX, ARENAS)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BYTES)


def collect_often() -> None:
    """Collect cyclic garbage often, all of it every TIDY_EVERY_S, and release freed memory then.

    Call this after all imports: existing objects are excluded from collection. Each redraw leaves
    about 500 objects in cycles (Textual's strips and their caches). With the thresholds of a verb's
    start, 60,000 of them waited, 8 MB, and freed memory is rarely released. The thresholds alone
    leave what is old: Python collects that only when it has grown by a quarter.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    threading.Thread(target=_tidy_for_ever, name="tidy", daemon=True).start()


def trim() -> None:
    """Release unused pages of the heap; only glibc's allocator supports it.

    By default only the end of the heap is released: the UI of a run of 2 ranks grew by 0.5 MB in 3
    minutes. With this call it did not grow.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _tidy_for_ever() -> None:
    while True:
        time.sleep(TIDY_EVERY_S)
        gc.collect()
        trim()
