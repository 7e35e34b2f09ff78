"""Let processes write no file beyond a size, as on a full disk: a write then fails with EFBIG.

    filelimit.py check PID…
    filelimit.py on NAME BYTES SECONDS PID:STARTTICKS…
    filelimit.py off NAME PID:STARTTICKS…

Only the soft limit is lowered, so that anybody may raise it again; no disk is filled.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


def started(pid: int) -> int:
    """In clock ticks since boot: with it a pid is the same process for good (proc(5))."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def check(pids: Sequence[str]) -> None:
    for pid in pids:
        limits = resource.prlimit(int(pid), resource.RLIMIT_FSIZE)
        resource.prlimit(int(pid), resource.RLIMIT_FSIZE, limits)
        print(f"{pid}:{started(int(pid))}")


def limit(known: Sequence[str], most: int | None) -> None:
    for one in known:
        pid, ticks = map(int, one.split(":"))
        with suppress(ProcessLookupError, FileNotFoundError):  # it is gone, and its limit with it
            if started(pid) == ticks:
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if most is None else most, hard))


def marker(name: str) -> Path:
    """A file that is there while the limit is: with it goes the process that would lift it."""
    return Path(tempfile.gettempdir()) / f".{name}"


def off(name: str, known: Sequence[str]) -> None:
    """Also when it is off already."""
    limit(known, None)
    marker(name).unlink(missing_ok=True)


def main(argv: Sequence[str]) -> int:
    verb, rest = argv[0], argv[1:]
    try:
        if verb == "check":
            check(rest)
        elif verb == "on":
            marker(rest[0]).touch()
            limit(rest[3:], int(rest[1]))
            sys.stdout.flush()
            if not os.fork():
                os.setsid()
                null = os.open(os.devnull, os.O_RDWR)
                for number in (0, 1, 2):
                    os.dup2(null, number)
                ends = time.monotonic() + float(rest[2])
                while time.monotonic() < ends and marker(rest[0]).exists():
                    time.sleep(0.2)
                off(rest[0], rest[3:])
        else:
            off(rest[0], rest[1:])
    except PermissionError as error:
        print(error, file=sys.stderr)
        return 3
    except OSError as error:
        print(f"no such process: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
