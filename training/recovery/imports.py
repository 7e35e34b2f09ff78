"""Imports of a run's libraries ahead of need, which leave CPU time and memory to the ranks."""

from __future__ import annotations

import fcntl
import gc
import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

from training.free_memory import free_bytes
from training.recovery.settings import CPU_SHARE, IMPORTS_BYTES, SPARE_MEMORY_BYTES

log = logging.getLogger(__name__)

FAILED: set[str] = set()
"""Modules that this process could not import, or its parent before a fork."""

_SLICE_S = 0.02
_WAITS = 0.1
"""This thread competes for the CPU when it has waited for that share of the time it has used."""
_LONGEST_PAUSE_S = 2.0
_THROTTLED = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))


def missing(names: Sequence[str]) -> list[str]:
    """Return the modules that this process lacks, and has not tried to import."""
    return [name for name in names if name not in sys.modules and name not in FAILED]


def import_gently(names: Sequence[str]) -> None:
    """As `import_all`; while others want the CPU, use no more than CPU_SHARE of one."""
    pauses = Pauses()
    sys.meta_path.insert(0, pauses)
    try:
        import_all(names)
    finally:
        sys.meta_path.remove(pauses)


def import_all(names: Sequence[str]) -> None:
    """Import what can be imported, without collecting garbage: that was 20 % of the CPU time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        for name in names:
            try:
                importlib.import_module(name)
            except Exception:
                FAILED.add(name)
                log.debug("%s was not imported beforehand", name, exc_info=True)
    finally:
        if collects:
            gc.enable()


class Pauses(MetaPathFinder):
    """Asked first about each module, finds none, and sleeps if this thread had to compete.

    An idle scheduling class would do the same with less effort, but only a privileged process can
    leave it again, and a fork inherits it.
    """

    def __init__(
        self,
        used: Callable[[], tuple[float, bool]] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`used`: the CPU time of this thread in seconds, and whether it competes for the CPU."""
        self._used = used or Competition().used
        self._sleep = sleep
        self._before_s = self._used()[0]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        now_s, competes = self._used()
        if now_s - self._before_s < _SLICE_S:
            return
        if competes:
            pause_s = (now_s - self._before_s) * (1.0 / CPU_SHARE - 1.0)
            self._sleep(min(pause_s, _LONGEST_PAUSE_S))
        self._before_s = now_s


class Competition:
    """Whether a thread waits for the CPU, by the scheduler's statistics of it and of its cgroup."""

    def __init__(self) -> None:
        self._before = self._read()
        self._competes = False

    def used(self) -> tuple[float, bool]:
        now = self._read()
        used_s, waited_s, throttled = (a - b for a, b in zip(now, self._before, strict=True))
        if used_s + waited_s >= _SLICE_S:
            self._competes = waited_s > _WAITS * used_s or throttled > 0
            self._before = now
        return now[0], self._competes

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """Return the thread's seconds on a CPU and in its queue, and how often its cgroup's quota
        was used up: 0 where the kernel does not report it.
        """
        used_ns, waited_ns, throttled = time.thread_time_ns(), 0, 0
        with suppress(OSError, ValueError):
            waited_ns = int(Path("/proc/thread-self/schedstat").read_text().split()[1])
        for path in _THROTTLED:
            with suppress(OSError, ValueError):
                counts = dict(line.split() for line in path.read_text().splitlines())
                throttled = int(counts.get("nr_throttled", 0))
                break
        return used_ns / 1e9, waited_ns / 1e9, float(throttled)


@contextmanager
def reserved_memory(importing: Path, free: Callable[[], float] = free_bytes) -> Iterator[bool]:
    """Yield whether the node has memory for one more process with the run's libraries.

    Spares start at the same time. Each one that still imports has a file, named by its process id,
    in the directory `importing`: the memory that it is about to use counts as used.
    """
    importing.mkdir(mode=0o700, exist_ok=True)
    mine = importing / str(os.getpid())
    lock = os.open(importing, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = [path for path in importing.iterdir() if Path("/proc", path.name).exists()]
        is_reserved = free() - len(others) * IMPORTS_BYTES > SPARE_MEMORY_BYTES
        if is_reserved:
            mine.touch()
    finally:
        os.close(lock)
    try:
        yield is_reserved
    finally:
        mine.unlink(missing_ok=True)
