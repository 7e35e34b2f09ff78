"""The memory that this container or host has left for processes of the run."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_GROUPS = (
    ("memory.max", "memory.current", "inactive_file"),  # cgroup v2
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # v1
)
_PLACES = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory"))


def free_bytes(meminfo: Path = _MEMORY, groups: tuple[Path, ...] = _PLACES) -> int:
    """Until Ray's memory monitor ends workers: a share of the host, and of the container if it has
    a limit. The file cache counts as free.
    """
    share = float(os.environ.get("RAY_memory_usage_threshold", "0.95"))  # noqa: SIM112
    free = [_of_host(meminfo, share)]
    for place in groups:
        for limit_file, used_file, cache in _GROUPS:
            with suppress(OSError, ValueError):  # without the file, or "max": no limit
                limit = int((place / limit_file).read_text())
                used = int((place / used_file).read_text()) - _cache(place / "memory.stat", cache)
                free.append(int(share * limit) - used)
    return max(0, min(free))


def _of_host(meminfo: Path, share: float) -> int:
    sizes = {}
    for line in meminfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            sizes[name] = int(value.split()[0]) * 1024
    total = sizes["MemTotal"]
    return int(share * total) - (total - sizes["MemAvailable"])


def _cache(stat: Path, name: str) -> int:
    for line in stat.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
