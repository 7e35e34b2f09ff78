"""Stop a process with SIGSTOP for some seconds, all the time or a part of each moment.

stop.py KEY SECONDS STOP_S RUN_S PID:START

It is stopped for STOP_S and runs for RUN_S, alternating; with RUN_S 0 it never runs. At the end it
runs.
"""

from __future__ import annotations

import signal
import sys
import time

from cockpit.drills.pod_scripts.linux.process import Process, ended, parsed, send
from cockpit.drills.pod_scripts.timed_effect import Effect, hold

LONGEST_STOP_S = 2.0
"""While it alternates; longer would be a hang."""


def stopping(process: Process, stop_s: float, run_s: float) -> Effect:
    """Ends when the process has ended.

    On a busy host this process wakes late, and the other runs for longer than it should: then it is
    also stopped for longer, so that the share of the time is as requested.
    """
    due_s = stop_s
    try:
        while send(process, signal.SIGSTOP):
            yield due_s
            if run_s:
                began_s = time.monotonic()
                send(process, signal.SIGCONT)
                yield run_s
                due_s = min((time.monotonic() - began_s) * stop_s / run_s, LONGEST_STOP_S)
    finally:
        send(process, signal.SIGCONT)


def main() -> None:
    key, seconds, stop_s, run_s, process = sys.argv[1:]
    hit = parsed(process)
    hold(key, float(seconds), stopping(hit, float(stop_s), float(run_s)), stopped=[hit])
    print(f"holds {process}")


sys.exit(ended(main))
