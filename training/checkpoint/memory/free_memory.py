"""The memory that this container or host has left."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_GROUPS = (
    ("memory.max", "memory.current", "inactive_file"),  # cgroup v2
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),  # v1
)
_PLACES = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory"))


def free_bytes(meminfo: Path = _MEMORY, groups: tuple[Path, ...] = _PLACES) -> int:
    """Of the host, and of the container if it has a limit. The file cache counts as free."""
    free = [_of_host(meminfo)]
    for place in groups:
        for limit, used, cache in _GROUPS:
            with suppress(OSError, ValueError):  # without the file, or "max": no limit
                left = int((place / limit).read_text()) - int((place / used).read_text())
                free.append(left + _cache(place / "memory.stat", cache))
    return max(0, min(free))


def _of_host(meminfo: Path) -> int:
    for line in meminfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise ValueError(f"{meminfo} has no MemAvailable")


def _cache(stat: Path, name: str) -> int:
    for line in stat.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
