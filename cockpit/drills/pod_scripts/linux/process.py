"""Find, identify and signal the processes of this pod.

In a container all processes that share its files belong to the pod. A pod of a local cluster has
only some of the host's processes: those that carry its markers (see
`cockpit.backends.local.pods.process` for how a process title can overwrite them).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

MARKS = ("COCKPIT_LOCAL_CLUSTER", "COCKPIT_LOCAL_POD")
IS_LOCAL = bool(os.environ.get(MARKS[1]))


class Failed(Exception):
    """An unmet condition, in one line."""


class Process(NamedTuple):
    """For good: a number is given again, never with the same start (clock ticks since boot)."""

    pid: int
    start: int

    def __str__(self) -> str:
        return f"{self.pid}:{self.start}"


def parsed(text: str) -> Process:
    pid, _, start = text.partition(":")
    return Process(int(pid), int(start))


def living(pid: int) -> Process | None:
    """None when there is no such process, or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command, in brackets, may hold spaces and brackets; fields are numbered in proc(5).
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else Process(pid, int(fields[19]))


def is_alive(process: Process) -> bool:
    return living(process.pid) == process


def send(process: Process, number: int) -> bool:
    """Signal this process and no other; whether it was there.

    The descriptor holds on to the process between the look and the signal.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def rank(pid: int) -> Process:
    """Return Ray's worker process with this PID. Raises Failed if it is none."""
    found = living(pid)
    if found is None:
        raise Failed(f"process {pid} has ended")
    if not is_ours(pid):
        raise Failed(f"process {pid} is not of this pod")
    title = command_line(pid)[0]
    # Ray names its workers `ray::CLASS…`, and idle ones `ray::IDLE`.
    if not title.startswith("ray::") or title.startswith("ray::IDLE"):
        raise Failed(f"process {pid} is no rank but {title[:60]!r}")
    return found


def named(program: str) -> list[Process]:
    """Those of this pod that run `raylet`, `gcs_server` or `dashboard.py`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            pid = int(entry.name)
            # A program is its own first argument; Python's is among the first, after its options.
            began = [text.rpartition("/")[2] for text in command_line(pid)[:4]]
            runs = program in (began if program.endswith(".py") else began[:1])
            process = living(pid) if runs and is_ours(pid) else None
            if process is not None:
                found.append(process)
    return found


def command_line(pid: int) -> list[str]:
    """Its command line; at least one argument, which may be empty."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        raw = b""
    return raw.rstrip(b"\0").decode(errors="replace").split("\0")


def is_ours(pid: int) -> bool:
    """Whether the process is this pod's."""
    place = Path(f"/proc/{pid}")
    try:
        if not IS_LOCAL:
            # With the host's processes in sight, or those of other containers of the pod, what
            # identifies ours is that it sees the same files.
            return (place / "ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
        environment = (place / "environ").read_bytes()
        own = [f"{mark}={os.environ[mark]}".encode() for mark in MARKS]
        items = environment.split(b"\0")
        if all(mark in items for mark in own):
            return True
        marked = any(item.startswith(MARKS[0].encode() + b"=") for item in items)
        overwritten = b"=" not in items[0] or b"\0\0" in environment
        return not marked and overwritten and is_inside(place)
    except OSError:
        return False  # it has ended, or is another user's


def is_inside(place: Path) -> bool:
    """Whether the process works or writes in the directory of this pod, the working directory."""
    for link in ("cwd", "fd/1", "fd/2"):
        try:
            target = (place / link).readlink()
        except OSError:
            continue
        if Path.cwd() in (target, *target.parents):
            return True
    return False


def has_capability(number: int) -> bool:
    """Whether this process has the capability of this bit (linux/capability.h)."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    effective = next(line for line in status if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> number & 1)


def leave_behind() -> bool:
    """Fork. Return True in the process that responds, False in the detached one that continues."""
    sys.stdout.flush()
    if os.fork():
        return True
    os.setsid()
    close_streams()
    return False


def close_streams() -> None:
    """Connect the standard streams to /dev/null, so that no caller waits for their end."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def ended(work: Callable[[], None]) -> int:
    """Run `work`; return an exit code (`cockpit.drills.engine.pod_script`), and print an error."""
    try:
        work()
    except PermissionError as error:
        print(error, file=sys.stderr)
        return 3
    except (Failed, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0
