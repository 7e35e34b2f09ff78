"""Processes that hold namespaces: they end with the test, and their first process is found."""

from __future__ import annotations

import ctypes
import signal
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_APPEARS_WITHIN_S = 10.0


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills the process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def only_child(pid: int) -> int:
    """The first child of the process, which may still be starting it."""
    deadline = time.monotonic() + _APPEARS_WITHIN_S
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while children.exists() and time.monotonic() < deadline:
        if found := children.read_text().split():
            return int(found[0])
        time.sleep(0.005)
    raise RuntimeError(f"process {pid} has no child process")
