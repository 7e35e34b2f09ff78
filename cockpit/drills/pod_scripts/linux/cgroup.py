"""The limits of this container, by either version of the kernel's control groups."""

from __future__ import annotations

import math
import os
from pathlib import Path

from cockpit.drills.pod_scripts.linux.process import Failed

ROOT = Path("/sys/fs/cgroup")
IS_SECOND = (ROOT / "cgroup.controllers").exists()
MEMORY = ROOT if IS_SECOND else ROOT / "memory"


def memory_limit() -> int:
    """Bytes. Raises Failed where the container may have all of its host's."""
    name = "memory.max" if IS_SECOND else "memory.limit_in_bytes"
    text = (MEMORY / name).read_text().strip() if (MEMORY / name).exists() else "max"
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if text == "max" or int(text) >= whole:
        raise Failed("the container has no memory limit: its host would run out of memory")
    return int(text)


def memory_used() -> int:
    """Bytes, without what the kernel gives back when it needs it: as Ray's monitor counts."""
    used = int((MEMORY / ("memory.current" if IS_SECOND else "memory.usage_in_bytes")).read_text())
    key = "inactive_file" if IS_SECOND else "total_inactive_file"
    return used - count(MEMORY / "memory.stat", key)


def killed_for_memory() -> int:
    """How many processes of this container the kernel has killed, so far."""
    return count(MEMORY / ("memory.events" if IS_SECOND else "memory.oom_control"), "oom_kill")


def cpus(allowed: int) -> int:
    """How many of the CPUs that a process may run on the container may use at once."""
    if IS_SECOND:
        quota, _, period = first_line(ROOT / "cpu.max", "max 1").partition(" ")
    else:
        quota = first_line(ROOT / "cpu/cpu.cfs_quota_us", "-1")
        period = first_line(ROOT / "cpu/cpu.cfs_period_us", "1")
    if quota in ("max", "-1"):
        return allowed
    return max(1, min(allowed, math.ceil(int(quota) / int(period))))


def first_line(path: Path, default: str) -> str:
    return path.read_text().strip() if path.exists() else default


def count(path: Path, key: str) -> int:
    """The number of a key in a file of `KEY NUMBER` lines; 0 without it."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return next((int(pair[1]) for pair in pairs if pair[0] == key), 0)
