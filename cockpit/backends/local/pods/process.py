"""Find the processes of a local cluster in /proc, and kill only these.

Ray's processes leave their pod in two ways. Each Ray worker has a separate process group, and a
job's driver a separate session; so neither a process group nor a session is the whole pod. And
`setproctitle` (every `ray::…` and `ray-dashboard-…` process) overwrites what /proc/PID/environ
shows, so an environment marker alone does not find everything either. A process is the cluster's
when

1. its environment carries the cluster's marker, or
2. its environment was overwritten, all of it or the part with the marker, and its working
   directory, its output, or the session that it is in is the cluster's.

A process with a readable environment and no marker is never killed, in any directory: a shell
in the cluster's directory is the user's.

Beyond the standard library it needs CockpitError alone: it is part of the `ssh` backend's agent.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from cockpit.model.error import CockpitError

CLUSTER_VARIABLE = "COCKPIT_LOCAL_CLUSTER"
POD_VARIABLE = "COCKPIT_LOCAL_POD"

_PROC = Path("/proc")
_EXEC_CHECKS = 500
_EXEC_CHECK_S = 0.002
_ENVIRONMENT_END = 51 - 3
"""The index of `env_end` of proc(5), from the state on."""


class ProcessId(NamedTuple):
    """A process, identified by its PID and start time in clock ticks since boot.

    The kernel reuses a PID, but not the same pair before the next boot, and after a reboot no
    process of the stored state exists.
    """

    pid: int
    start_ticks: int


class Found(NamedTuple):
    """One living process of a cluster. `pod` is empty for the operator."""

    id: ProcessId
    session: int
    pod: str


class PodTrace(NamedTuple):
    """Identifies a pod's processes: its name, its directory, its session."""

    pod: str
    directory: str
    session: int


def identify(pid: int) -> ProcessId | None:
    """The running process with this PID, or None. A zombie is not running."""
    stat = _stat(pid)
    return None if stat is None else ProcessId(pid, stat[1])


def is_alive(process: ProcessId | None) -> bool:
    return process is not None and identify(process.pid) == process


def find(uid: str, traces: Collection[PodTrace], root: str) -> tuple[Found, ...]:
    """All living processes of the cluster `uid`, whose files are under `root`."""
    found: list[Found] = []
    unmarked: list[tuple[ProcessId, int]] = []
    sessions = {trace.session: trace.pod for trace in traces if trace.session}
    mine = os.getuid()
    for pid in _pids():
        try:
            if (_PROC / str(pid)).stat().st_uid != mine:
                continue
            environment = _environment(pid)
        except OSError:
            continue  # it has ended, or is not ours to read: then it is not the cluster's
        stat = _stat(pid)
        if stat is None:
            continue
        session, start = stat
        marks = _marks(environment)
        if marks is None:
            unmarked.append((ProcessId(pid, start), session))
        elif marks[0] == uid:
            found.append(Found(ProcessId(pid, start), session, marks[1]))
            if marks[1] and session == pid:
                sessions.setdefault(session, marks[1])
    for process, session in unmarked:
        pod = _pod_of_unmarked(process.pid, session, sessions, traces, root)
        if pod is not None:
            found.append(Found(process, session, pod))
    return tuple(found)


def end(who: Callable[[], Collection[Found]], *, timeout_s: float = 10.0) -> int:
    """SIGKILL all of `who()` until none is left. Return how many were killed.

    `who` is called again after each round, since a process may fork while it is being killed.
    Usually blocks for a few milliseconds. Raises CockpitError when something is left `timeout_s`
    after the first kill. Only a call of `who` that began after that time counts: an earlier one
    may have been delayed by the host, and a process that it found may have ended since.
    """
    ended: set[ProcessId] = set()
    deadline: float | None = None
    is_late = False
    while left := [found for found in who() if found.id.pid != os.getpid()]:
        for found in left:
            kill(found.id, signal.SIGKILL)
            ended.add(found.id)
        if is_late:
            pids = ", ".join(str(found.id.pid) for found in left)
            raise CockpitError(
                f"These processes of the cluster did not end: {pids}.",
                "They were killed, but wait in the kernel (state D, usually for storage), or "
                "this host is overloaded.",
                "Delete the cluster again later.",
            )
        if deadline is None:
            deadline = time.monotonic() + timeout_s
        is_late = time.monotonic() > deadline
        time.sleep(0.01)
    return len(ended)


def kill(process: ProcessId, number: signal.Signals) -> bool:
    """Send the signal to this process and no other. Returns whether it was there.

    A pidfd holds on to the process between the look and the signal.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if identify(process.pid) != process:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _pids() -> Iterator[int]:
    return (int(path.name) for path in _PROC.iterdir() if path.name.isdecimal())


def _stat(pid: int) -> tuple[int, int] | None:
    """Session and start time; None when there is no such process or it is a zombie."""
    try:
        fields = _stat_fields(pid)
    except OSError:
        return None
    return None if fields[0] in "ZX" else (int(fields[3]), int(fields[19]))


def _environment(pid: int) -> bytes:
    """As /proc shows it. Raises OSError when the process has ended, or does not end its exec.

    In the middle of its exec a process shows an empty one, and has had its files closed already,
    so that its parent continues: it is read again. Kernel threads and processes started without
    any variable are empty for good.
    """
    path, is_empty = _PROC / str(pid), False
    for _ in range(_EXEC_CHECKS):
        if (environment := (path / "environ").read_bytes()) or is_empty:
            return environment
        # The exec may have ended since that was read.
        is_empty = _has_environment(pid) or not (path / "maps").read_bytes()
        if not is_empty:
            time.sleep(_EXEC_CHECK_S)
    raise TimeoutError(f"process {pid} is in its exec")


def _has_environment(pid: int) -> bool:
    """False in the middle of an exec (`create_elf_tables` of Linux sets it), and in the kernel."""
    return int(_stat_fields(pid)[_ENVIRONMENT_END]) != 0


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state, the third of proc(5), on. Raises OSError."""
    text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    # The command, in brackets, may hold spaces and brackets.
    return text[text.rindex(")") + 2 :].split()


def _marks(environment: bytes) -> tuple[str, str] | None:
    """Cluster and pod of an environment (empty when unmarked), or None when it is overwritten.

    A title is written over the arguments and as much of the environment as it takes, padded with
    zeros: of a large environment the end stays, with the marks in it or without, after what is
    no variable or after several zeros. No other environment looks like that.
    """
    marks = {CLUSTER_VARIABLE: "", POD_VARIABLE: ""}
    for item in environment.split(b"\0"):
        name, _, value = item.partition(b"=")
        if (key := name.decode(errors="replace")) in marks:
            marks[key] = value.decode(errors="replace")
    eaten = b"=" not in environment.partition(b"\0")[0] or b"\0\0" in environment
    if not marks[CLUSTER_VARIABLE] and eaten:
        return None
    return marks[CLUSTER_VARIABLE], marks[POD_VARIABLE]


def _pod_of_unmarked(
    pid: int, session: int, sessions: dict[int, str], traces: Collection[PodTrace], root: str
) -> str | None:
    if session in sessions:
        return sessions[session]
    for link in ("cwd", "fd/1", "fd/2"):
        try:
            target = str((_PROC / str(pid) / link).readlink())
        except OSError:
            continue
        for trace in traces:
            if target == trace.directory or target.startswith(trace.directory + "/"):
                return trace.pod
        if target == root or target.startswith(root + "/"):
            return ""
    return None


def environment_of(process: ProcessId) -> dict[str, str]:
    """The command line of the process; empty when it has ended."""
    try:
        raw = _environment(process.pid)
    except OSError:
        return {}
    if not is_alive(process):
        return {}
    items = (item.decode(errors="surrogateescape") for item in raw.split(b"\0"))
    return dict(item.split("=", 1) for item in items if "=" in item)
