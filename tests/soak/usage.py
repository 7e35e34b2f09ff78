"""The resources of a process: memory, descriptors, threads, children, and its Python objects."""

from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Usage:
    at_s: float
    """Since the beginning of the measurement."""
    memory_bytes: int
    """Resident."""
    anonymous_bytes: int
    """The part that no file backs. Pages of libraries come and go with the memory of the host."""
    descriptors: int
    threads: int
    children: int

    @classmethod
    def of(cls, pid: int, at_s: float) -> Usage:
        """Raises OSError when the process has ended."""
        status = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if ":" in line
        )
        if "VmRSS" not in status:  # it has ended, and its parent has not waited for it yet
            raise ProcessLookupError(pid)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return cls(
            at_s,
            int(status["VmRSS"].split()[0]) * 1024,
            int(status["RssAnon"].split()[0]) * 1024,
            len(list(Path(f"/proc/{pid}/fd").iterdir())),
            int(status["Threads"]),
            len(children),
        )


class Sampler:
    """Samples a process until it ends or `stop` is called."""

    def __init__(self, pid: int) -> None:
        self.pid, self.samples, self.ended = pid, list[Usage](), False
        self._stop = threading.Event()
        self._began_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="soak-usage", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                self.samples.append(Usage.of(self.pid, time.monotonic() - self._began_s))
            except OSError:
                self.ended = True
                return
            if self._stop.wait(EVERY_S):
                return


def memory_growth(samples: Sequence[Usage], settled_s: float) -> float:
    """By how much of it the memory grew from `settled_s` on to the end: medians of a minute.

    Only anonymous memory counts as growth: a busy host evicts pages of libraries, which hid 6 MB.
    """
    begin = [of for of in samples if settled_s <= of.at_s < settled_s + 60.0]
    end = [of for of in samples if of.at_s >= samples[-1].at_s - 60.0]
    grown, before = (statistics.median(of.anonymous_bytes for of in part) for part in (end, begin))
    return (grown - before) / statistics.median(of.memory_bytes for of in begin)


@dataclass(frozen=True, slots=True)
class Objects:
    """The Python objects of a process."""

    blocks: int
    """Memory blocks of the interpreter's own allocator in use."""
    kinds: Mapping[str, tuple[int, int]]
    """By type: the number of objects that the garbage collector tracks, and their bytes; and as
    `builtins.str in collections.deque` those that it does not track, by the type that holds them.
    """
    modules: frozenset[str]
    """The imported ones: one that is imported late takes memory from then on."""

    @classmethod
    def of(cls, pid: int, path: Path, timeout_s: float = 20.0) -> Objects:
        """Ask a process that the sitecustomize of `clock` prepared with SOAK_OBJECTS=`path`.

        Raises TimeoutError.
        """
        path.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR2)
        deadline = time.monotonic() + timeout_s
        while not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {pid} did not list its objects")
            time.sleep(0.1)
        raw = json.loads(path.read_text())
        kinds = {name: (of[0], of[1]) for name, of in raw["kinds"].items()}
        return cls(raw["blocks"], kinds, frozenset(raw["modules"]))

    def grown_since(self, before: Objects, most: int = 20) -> str:
        """The types that took the most bytes more than before, and modules that are new."""
        more = {
            name: (
                count - before.kinds.get(name, (0, 0))[0],
                size - before.kinds.get(name, (0, 0))[1],
            )
            for name, (count, size) in self.kinds.items()
        }
        names = sorted(more, key=lambda name: -more[name][1])[:most]
        listed = ", ".join(
            f"{name} {more[name][0]:+,} ({more[name][1] / 1e3:+,.0f} KB)" for name in names
        )
        new = sorted(self.modules - before.modules)
        return (
            f"{self.blocks - before.blocks:+,} blocks of {before.blocks:,}; {listed}; "
            f"{len(new)} modules imported since: {', '.join(new)}"
        )
