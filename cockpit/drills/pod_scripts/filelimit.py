"""Limit the size of the files that processes write, as on a full disk: writes fail with EFBIG.

    filelimit.py check PID…
    filelimit.py on NAME BYTES SECONDS PID:STARTTICKS…
    filelimit.py off NAME PID:STARTTICKS… [refuse]

Only the soft limit is lowered, so that it can be raised again without a privilege; no disk is
filled. A file contains the original limit and the limits of all faults that overlap on a process:
the lowest applies, and the end of the last fault restores the original.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cockpit.drills.pod_scripts.linux.file_lock import locked, write_atomically
from cockpit.drills.pod_scripts.linux.process import (
    Failed,
    Process,
    ended,
    is_alive,
    leave_behind,
    living,
    parsed,
)
from cockpit.drills.pod_scripts.marker import claim, marker, refuse, require

LOCK_S = 10.0


def check(pids: Sequence[str]) -> None:
    for pid in pids:
        process = living(int(pid))
        if process is None:
            raise Failed(f"process {pid} has ended")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits(process))
        print(process)


def limits(process: Process) -> tuple[int, int]:
    return resource.prlimit(process.pid, resource.RLIMIT_FSIZE)


def state(process: Process) -> Path:
    """The soft limit before the first fault, and that of each fault."""
    name = f".cockpit-filelimit-{process.pid}-{process.start}.json"
    return Path(tempfile.gettempdir()) / name


def change(process: Process, name: str, most: int | None) -> None:
    """Add the fault's limit, or with None remove it."""
    path = state(process)
    if not is_alive(process):
        path.unlink(missing_ok=True)
        return
    soft, hard = limits(process)
    if path.exists():
        saved = json.loads(path.read_text())
    elif most is None:
        return
    else:
        saved = {"soft": soft, "faults": {}}
    saved["faults"].pop(name, None)
    if most is not None:
        saved["faults"][name] = most
    if saved["faults"]:
        write_atomically(path, json.dumps(saved))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (min(saved["faults"].values()), hard))
    else:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (saved["soft"], hard))
        path.unlink()


def change_all(name: str, processes: Sequence[Process], most: int | None) -> None:
    for process in processes:
        lock = state(process).with_suffix(".lock")
        with locked(lock, LOCK_S):
            if most is not None:
                require(marker(name))
            try:
                change(process, name, most)
            except ProcessLookupError:
                state(process).unlink(missing_ok=True)  # it has ended, and its limit with it
            if not state(process).exists():
                lock.unlink()


def on(name: str, most: int, seconds: float, processes: Sequence[Process]) -> None:
    claim(marker(name))
    try:
        change_all(name, processes, most)
    except BaseException:
        off(name, processes)
        raise
    if leave_behind():
        return
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and marker(name).exists():
        time.sleep(0.2)
    off(name, processes)


def off(name: str, processes: Sequence[Process], never: bool = False) -> None:
    """Also when it is off already. With `never` it may not begin later."""
    if never and refuse(marker(name)):
        return
    marker(name).unlink(missing_ok=True)
    change_all(name, processes, None)


def main() -> None:
    verb, *rest = sys.argv[1:]
    if verb == "check":
        check(rest)
    elif verb == "on":
        on(rest[0], int(rest[1]), float(rest[2]), [parsed(text) for text in rest[3:]])
    else:
        never = rest[-1] == "refuse"
        processes = rest[1:-1] if never else rest[1:]
        off(rest[0], [parsed(text) for text in processes], never)


sys.exit(ended(main))
