"""Print the processes that a fault would hit, one `PID:START` a line. Changes nothing.

inspect.py rank PID…
inspect.py raylet | gcs_server | dashboard.py
"""

from __future__ import annotations

import sys

from cockpit.drills.pod_scripts.linux.process import Failed, ended, named, rank


def main() -> None:
    what, pids = sys.argv[1], sys.argv[2:]
    found = [rank(int(pid)) for pid in pids] if what == "rank" else named(what)
    if not found:
        raise Failed(f"no process here runs {what}")
    for process in found:
        print(process)


sys.exit(ended(main))
