"""glibc's allocator, set for a process that runs for days with many short-lived threads."""

from __future__ import annotations

import ctypes
from contextlib import suppress

M_ARENA_MAX = -8
"""malloc.h of glibc."""
ARENAS = 2


def limit_arenas() -> None:
    """Give the threads to come ARENAS arenas together; elsewhere than with glibc, do nothing.

    By default glibc makes up to 8 arenas a core, and memory that is freed in one is not used by
    another: each thread that reads a file or a recording leaves its own behind. The threads of
    Python take turns anyway.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
