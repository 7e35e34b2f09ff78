"""SIGKILL these processes, and no others that have their numbers by now: kill.py PID:START…"""

from __future__ import annotations

import signal
import sys

from cockpit.drills.pod_scripts.linux.process import Failed, ended, parsed, send


def main() -> None:
    killed = [text for text in sys.argv[1:] if send(parsed(text), signal.SIGKILL)]
    if not killed:
        raise Failed(f"ended before it was hit: {' '.join(sys.argv[1:])}")
    print(f"killed {' '.join(killed)}")


sys.exit(ended(main))
