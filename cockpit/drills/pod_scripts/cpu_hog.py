"""Keep processors busy: cpu_hog.py KEY SECONDS COUNT [PID:START]

COUNT processes, or with 0 as many as the container may run at once; on the processors that the
process may use, where one is named.
"""

from __future__ import annotations

import os
import signal
import sys

from cockpit.drills.pod_scripts.linux.cgroup import cpus
from cockpit.drills.pod_scripts.linux.process import IS_LOCAL, Failed, ended, is_alive, parsed
from cockpit.drills.pod_scripts.timed_effect import Effect, hold


def busy(count: int, processors: set[int]) -> Effect:
    keeper = os.getpid()
    children = []
    try:
        for _ in range(count):
            child = os.fork()
            if child == 0:
                spin(keeper, processors)
            children.append(child)
        while True:
            yield 1.0
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def spin(keeper: int, processors: set[int]) -> None:
    """Until the keeper has ended, in any way."""
    os.sched_setaffinity(0, processors)
    while os.getppid() == keeper:
        for _ in range(100_000):
            pass
    os._exit(0)


def main() -> None:
    key, seconds, wanted = sys.argv[1:4]
    if IS_LOCAL:
        raise Failed("this pod shares the processors of its host")
    process = parsed(sys.argv[4]) if sys.argv[4:] else None
    if process is not None and not is_alive(process):
        raise Failed(f"process {process.pid} has ended")
    processors = os.sched_getaffinity(process.pid if process else 0)
    count = int(wanted) or cpus(len(processors))
    hold(key, float(seconds), busy(count, processors))
    print(f"{count} busy processes on {len(processors)} processors")


sys.exit(ended(main))
