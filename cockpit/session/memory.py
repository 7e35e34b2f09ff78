"""Python's collector and glibc's allocator, set for a process that runs for days."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

M_ARENA_MAX = -8
"""malloc.h of glibc."""
ARENAS = 2
THRESHOLDS = (1_000, 5, 5)


def limit_arenas() -> None:
    """Give the threads to come ARENAS arenas together; elsewhere than with glibc, do nothing.

    By default glibc makes up to 8 arenas a core, and memory that is freed in one is not used by
    another: each thread that reads a file or a recording leaves its own behind. The threads of
    Python take turns anyway.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def collect_often() -> None:
    """Collect cyclic garbage often, and never look at what is there now again.

    To be called when everything is imported.

    Each redraw leaves some 500 objects in cycles (Textual's strips and their caches). With the
    thresholds that a verb starts with, 60,000 of them waited, 8 MB, and memory that was used once
    is rarely given back.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
