"""Which process wrote a record on disk, and whether it still runs.

A state directory may be shared between nodes (a home on NFS, a volume of pods), where a process
number means nothing for another node's processes.
"""

from __future__ import annotations

import os
import socket
from enum import Enum
from pathlib import Path
from typing import Self

from msgspec import Struct


class ProcessState(Enum):
    """The result of a check of another process."""

    RUNS = "runs"
    ENDED = "ended"
    UNKNOWN = "unknown"
    """It is on another node, or in another container."""


class ProcessId(Struct, frozen=True):
    """Identifies one process for good. Empty strings: the system did not report it."""

    pid: int
    host: str = ""
    """The host name of its node, or of its pod."""
    boot: str = ""
    """The boot id of its kernel (random(4))."""
    namespace: str = ""
    """The pid namespace (pid_namespaces(7)), in which `pid` counts."""
    born: str = ""
    """When it started, in clock ticks since the boot: its number may be another's by now."""

    @classmethod
    def own(cls) -> Self:
        """The identity of this process."""
        pid = os.getpid()
        return cls(pid, socket.gethostname(), _boot(), _namespace(), _born(pid))

    @property
    def life(self) -> ProcessState:
        """Whether it still runs, as far as that can be found out from here."""
        own = ProcessId.own()
        if self.boot != own.boot:
            # The same host after a reboot; a host of another name is another node.
            return (
                ProcessState.ENDED if self.host and self.host == own.host else ProcessState.UNKNOWN
            )
        if not self.boot and self.host != own.host:
            return ProcessState.UNKNOWN
        if self.namespace and self.namespace != own.namespace:
            return ProcessState.UNKNOWN
        if self.born and self.born != _born(self.pid):
            return ProcessState.ENDED
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return ProcessState.ENDED
        except PermissionError:
            return ProcessState.RUNS
        return ProcessState.RUNS


def stat(folder: Path) -> list[str]:
    """The fields of `stat` in a folder of /proc after the name of the command, which may hold
    anything: the first is the state, field 3 of proc(5). Raises OSError.
    """
    return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()


def _born(pid: int) -> str:
    """Empty for an unknown process, and for one that has ended and waits for its parent."""
    try:
        fields = stat(Path(f"/proc/{pid}"))
        return "" if fields[0] in ("Z", "X") else fields[19]
    except (OSError, IndexError):
        return ""


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
