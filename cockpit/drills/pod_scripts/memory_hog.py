"""Fill the memory of this container up to its limit.

    memory_hog.py measure
    memory_hog.py fill KEY SECONDS PERCENT FILL_S [PID:START…]

The memory is that of a file in memory, which counts against the container and not against a
process. So the kernel does not kill this process but the one with the highest score, one of the
named processes: ranks. The script ends when one of them has ended, when the kernel has killed a
process, or after SECONDS.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from cockpit.drills.pod_scripts.linux.cgroup import killed_for_memory, memory_limit, memory_used
from cockpit.drills.pod_scripts.linux.process import (
    IS_LOCAL,
    Failed,
    Process,
    ended,
    is_alive,
    parsed,
)
from cockpit.drills.pod_scripts.timed_effect import (
    Effect,
    Scores,
    hold,
    is_scored,
    score_of,
    set_score,
)

FIRST_TO_DIE = 1000
LOOK_S = 0.05
CHUNK_BYTES = 4 << 20


def filling(aim: int, fill_s: float, ranks: Sequence[Process], scores: Scores) -> Effect:
    """Until the container has `aim` bytes in use, and then as long as it lasts.

    By the clock: on a busy machine, where it is woken late, it catches up.
    """
    killed, first, most = killed_for_memory(), memory_used(), memory_limit()
    began_s, written = time.monotonic(), 0
    handle = os.memfd_create("cockpit-drill")

    def goes_on() -> bool:
        return all(map(is_alive, ranks)) and killed_for_memory() == killed

    try:
        for process in ranks:
            set_score(process, FIRST_TO_DIE)
        while goes_on():
            yield LOOK_S
            due = first + (aim - first) * min(1.0, (time.monotonic() - began_s) / fill_s)
            while written < most and memory_used() < due and goes_on():
                # Allocated and counted, but not written: this takes almost no time.
                os.posix_fallocate(handle, written, CHUNK_BYTES)
                written += CHUNK_BYTES
    finally:
        os.close(handle)
        for process, score in scores:
            set_score(process, score)


def main() -> None:
    if IS_LOCAL:
        raise Failed("this pod shares the memory of its host")
    limit = memory_limit()
    if sys.argv[1] == "measure":
        print(limit, memory_used())
        return
    key, seconds, percent, fill_s = sys.argv[2:6]
    ranks = [parsed(text) for text in sys.argv[6:]]
    removed = [str(process.pid) for process in ranks if not is_alive(process)]
    if removed:
        raise Failed(f"ended before it was hit: {' '.join(removed)}")
    # Not by the score itself: Ray gives its workers this one (worker_oom_score_adjustment).
    if any(map(is_scored, ranks)):
        raise Failed("another memory fault lasts: two of them could not both be undone")
    scores = [(process, score_of(process)) for process in ranks]
    aim = int(limit * float(percent) / 100)
    hold(key, float(seconds), filling(aim, float(fill_s), ranks, scores), scores=scores)
    print(f"fills {aim} of {limit} bytes")


sys.exit(ended(main))
