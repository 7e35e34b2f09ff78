"""Kill every process of this container but the first; it ends with them.

container.py check
container.py kill

`kill` returns before it kills: the process that runs it would be killed too, and could not report
it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from cockpit.drills.pod_scripts.linux.process import (
    IS_LOCAL,
    Failed,
    Process,
    ended,
    is_ours,
    leave_behind,
    living,
    send,
)

ANSWERED_S = 0.3
"""Until our answer has left the container."""
LONGEST_S = 5.0
"""A process that does not end by then is stuck in the kernel."""


def others() -> list[Process]:
    """All of ours but the first, which no signal from inside can kill, and ourselves."""
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    found = (living(pid) for pid in numbers if pid not in (1, os.getpid()) and is_ours(pid))
    return [process for process in found if process is not None]


def kill_all() -> None:
    """Never returns."""
    time.sleep(ANSWERED_S)
    until = time.monotonic() + LONGEST_S
    while time.monotonic() < until:  # one may have been started while the others were killed
        for process in others():
            send(process, signal.SIGKILL)
        time.sleep(0.02)
    os._exit(0)


def main() -> None:
    if IS_LOCAL:
        raise Failed("this is no container: its processes are the host's")
    found = others()
    if not found:
        raise Failed("no process of this container can be killed")
    for process in found:
        send(process, 0)
    print(f"{len(found)} processes")
    if sys.argv[1] == "kill" and not leave_behind():
        kill_all()


sys.exit(ended(main))
