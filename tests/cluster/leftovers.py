"""Find and remove what a space has left outside of itself.

A space's owner may be killed at any time. The folder contains the owner's id, and the next process
that opens a space cleans up.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

PREFIX = "cockpit-testbed-"
CGROUPS = Path("/sys/fs/cgroup")
LINK = "cpt"
"""Network devices are LINK and a number; the number chooses the addresses too."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who must be alive for a space to be in use."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Owner:
        """RuntimeError when there is no such process."""
        if not (started := start_of(pid)):
            raise RuntimeError(f"process {pid} is gone")
        return cls(pid, started)

    @property
    def alive(self) -> bool:
        return start_of(self.pid) == self.started

    @property
    def group(self) -> str:
        """Of the control groups of the space whose first process this is."""
        return f"{PREFIX}{self.pid}-{self.started}"


@dataclass(frozen=True, slots=True)
class Record:
    """The description in a space's folder."""

    number: int
    first: Owner
    """Its first process."""
    owner: Owner
    keep: bool

    def write(self, folder: Path) -> None:
        (folder / "space.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Record | None:
        """None for a folder that was left half-made."""
        try:
            raw = json.loads((folder / "space.json").read_text())
            return cls(raw["number"], Owner(**raw["first"]), Owner(**raw["owner"]), raw["keep"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


@contextmanager
def alone() -> Iterator[None]:
    """One process at a time: a space that is half open looks like a leftover to others."""
    folder = os.open("/", os.O_RDONLY)  # a file for it would be left behind
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def clear() -> None:
    """All resources of a space whose owner has ended: processes, folders, groups, devices."""
    for folder in folders():
        record = Record.read(folder)
        if record is None:
            shutil.rmtree(folder)
        elif not record.owner.alive:
            if record.first.alive:
                os.kill(record.first.pid, signal.SIGKILL)
            remove(folder, record)
    for hierarchy in hierarchies():
        for group in hierarchy.glob(f"{PREFIX}*"):
            # Folders may have other paths, so that a group's name contains its owner.
            pid, _, started = group.name.removeprefix(PREFIX).partition("-")
            if pid.isdigit() and not Owner(int(pid), started).alive:
                _remove_group(group)


def remove(folder: Path, record: Record) -> None:
    """What is outside of a space whose processes have ended."""
    deadline = time.monotonic() + 30
    for hierarchy in hierarchies():
        group = hierarchy / record.first.group
        while not _remove_group(group) and time.monotonic() < deadline:
            time.sleep(0.05)  # the kernel releases a group's processes asynchronously
    # The device is removed asynchronously with the namespace of its other end.
    link = f"{LINK}{record.number}"
    while _alias(link) == record.first.group and time.monotonic() < deadline:
        subprocess.run(["ip", "link", "delete", link], capture_output=True, check=False)
    if folder.exists():
        shutil.rmtree(folder)


def _alias(link: str) -> str:
    """The owner of the device: a number is reused as soon as its device is removed.

    Empty: no device.
    """
    try:
        return Path(f"/sys/class/net/{link}/ifalias").read_text().strip()
    except OSError:
        return ""


def _remove_group(group: Path) -> bool:
    """Remove a control group and those below it; False while one is still busy."""
    if not group.exists():
        return True
    try:
        for below, _, _ in os.walk(group, topdown=False):
            Path(below).rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def hierarchies() -> list[Path]:
    """The parent of control groups: each controller's tree (v1), or the single tree (v2)."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [
        path
        for path in CGROUPS.iterdir()
        if (path / "cgroup.procs").exists() and not path.is_symlink()
    ]


def make_groups(name: str) -> None:
    """One in each hierarchy, with every controller that there is."""
    for hierarchy in hierarchies():
        controllers = hierarchy / "cgroup.controllers"
        if hierarchy == CGROUPS and controllers.exists():
            # A group of the one tree has those alone that are switched on above it, and a kubelet
            # wants more of them than systemd may have needed.
            lacking = set(controllers.read_text().split())
            lacking -= set((hierarchy / "cgroup.subtree_control").read_text().split())
            for controller in sorted(lacking & {"cpu", "cpuset", "hugetlb", "memory", "pids"}):
                (hierarchy / "cgroup.subtree_control").write_text(f"+{controller}")
        (hierarchy / name).mkdir()


def folders() -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def start_of(pid: int) -> str:
    """When the process started, in the kernel's ticks; empty when it has ended (a zombie has)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    state, *numbers = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else numbers[18]
