"""Processes and threads as /proc describes them (proc(5))."""

from __future__ import annotations

import os
from pathlib import Path


def stat(of: int | str = "self") -> list[str]:
    """The fields of /proc/OF/stat after the name of the command, the state first.

    The name is in brackets and may hold anything, brackets included. `of` is a process, or
    `self/task/TID` for a thread. Raises OSError.
    """
    return Path(f"/proc/{of}/stat").read_text(errors="replace").rpartition(")")[2].split()


def cpu_s(of: int | str = "self") -> float:
    """The CPU time that it has used, in user and in kernel mode. Raises OSError."""
    fields = stat(of)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
