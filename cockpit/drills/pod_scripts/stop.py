"""Let a process stand still, all the time or a part of each moment, for some seconds.

stop.py KEY SECONDS STILL_S RUN_S PID:START

It is stopped for STILL_S and runs for RUN_S, in turns; with RUN_S 0 it never runs. At the end it
runs.
"""

from __future__ import annotations

import signal
import sys
import time

from cockpit.drills.pod_scripts.held import Effect, hold
from cockpit.drills.pod_scripts.process import Process, ended, parsed, send

LONGEST_STILL_S = 2.0
"""In turns; longer would be a hang."""


def standing(process: Process, still_s: float, run_s: float) -> Effect:
    """Ends by itself once the process is gone.

    On a busy machine we are woken late, and it runs for longer than it should: then it also stands
    still for longer, so that its part of the time stays what was asked for.
    """
    due_s = still_s
    try:
        while send(process, signal.SIGSTOP):
            yield due_s
            if run_s:
                began_s = time.monotonic()
                send(process, signal.SIGCONT)
                yield run_s
                due_s = min((time.monotonic() - began_s) * still_s / run_s, LONGEST_STILL_S)
    finally:
        send(process, signal.SIGCONT)


def main() -> None:
    key, seconds, still_s, run_s, process = sys.argv[1:]
    hit = parsed(process)
    hold(key, float(seconds), standing(hit, float(still_s), float(run_s)), stopped=[hit])
    print(f"holds {process}")


sys.exit(ended(main))
