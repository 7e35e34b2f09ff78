"""The resources of a process: memory, descriptors, threads, children."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
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
    """By how much of it the memory grew from `settled_s` on to the end: medians of a minute."""
    begin = [of for of in samples if settled_s <= of.at_s < settled_s + 60.0]
    end = [of for of in samples if of.at_s >= samples[-1].at_s - 60.0]
    before = statistics.median(of.memory_bytes for of in begin)
    return statistics.median(of.memory_bytes for of in end) / before - 1
