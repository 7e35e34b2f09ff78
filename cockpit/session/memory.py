"""Python's collector and glibc's allocator, set for a process that runs for days."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""malloc.h of glibc."""
ARENAS = 2
LARGE_BYTES = 64 * 1024
THRESHOLDS = (1_000, 5, 5)


def set_allocator() -> None:
    """Let glibc's allocator give memory back. To be called before the first thread starts.

    By default glibc makes up to 8 arenas a core, and memory that is freed in one is not used by
    another: each thread that reads a file or a recording leaves its own behind. The threads of
    Python take turns anyway, so they share ARENAS.

    By default the first answer of 20 MB also raises the size from which a block has its own
    mapping to 20 MB. From then on large answers lie in the heap, and small blocks that outlive them
    keep it from shrinking: 5 MB of 77 MB with a cluster of three pods. So the size is fixed, at
    LARGE_BYTES. Without glibc this does nothing.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_ARENA_MAX, ARENAS)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, 2 * LARGE_BYTES)


def collect_often() -> None:
    """Collect cyclic garbage often, and never look at what is there now again.

    To be called when everything is imported.

    Each redraw leaves some 500 objects in cycles (Textual's strips and their caches). With the
    thresholds that a verb starts with, 60,000 of them waited, 8 MB, and memory that was used once
    is rarely given back.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
