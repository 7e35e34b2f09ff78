"""Make a directory read-only, or its disk busy, for a while.

    storage.py check DIRECTORY
    storage.py read-only NAME DIRECTORY SECONDS
    storage.py busy NAME DIRECTORY SECONDS WRITERS
    storage.py off NAME DIRECTORY [refuse]

Read-only sets the immutable flag of the directory for root, who may write in any mode, and its mode
for other users. The original state and the names of the active faults are in a file beside it; the
end of the last fault restores it. Busy starts processes that repeatedly write and sync a file of a
few megabytes each, in a folder that is removed afterwards. A background process ends either fault.
With `refuse`, a fault of this NAME cannot begin later.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cockpit.drills.pod_scripts.linux.file_lock import RETRY_S, locked, write_atomically
from cockpit.drills.pod_scripts.linux.process import (
    close_streams,
    ended,
    has_capability,
    leave_behind,
)
from cockpit.drills.pod_scripts.marker import claim, is_refused, refuse, require

GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h, on 64 bits."""
IMMUTABLE = 0x10
CAP_LINUX_IMMUTABLE = 9
BLOCK = 4 << 20
LOCK_S, REMOVE_S = 10.0, 10.0


def flags(directory: Path) -> int:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = fcntl.ioctl(fd, GET_FLAGS, struct.pack("l", 0))
    finally:
        os.close(fd)
    return int(struct.unpack("l", found)[0])


def set_flags(directory: Path, value: int) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, SET_FLAGS, struct.pack("l", value))
    finally:
        os.close(fd)


def marker_of(name: str, directory: Path) -> Path:
    """Exists while this fault lasts. Beside the directory, which is not writable then."""
    return directory.parent / f".{name}.json"


def shared(directory: Path) -> Path:
    """How the directory was before the first of the faults that overlap, and who they are."""
    return directory.parent / f".cockpit-read-only-{directory.name}.json"


@contextmanager
def locked_state(directory: Path) -> Iterator[None]:
    """For one process at a time; its file is removed with the last fault, or with a failed one."""
    lock = shared(directory).with_suffix(".lock")
    with locked(lock, LOCK_S):
        try:
            yield
        finally:
            if not shared(directory).exists():
                lock.unlink()


def read_only(name: str, directory: Path, seconds: float) -> None:
    claim(marker_of(name, directory))
    try:
        with locked_state(directory):
            require(marker_of(name, directory))
            make_read_only(name, directory)
    except BaseException:
        marker_of(name, directory).unlink(missing_ok=True)
        raise
    print(f"{directory} is read-only for {seconds:g} s")
    if not leave_behind():
        wait(marker_of(name, directory), seconds)
        off(name, directory)


def make_read_only(name: str, directory: Path) -> None:
    state = shared(directory)
    if state.exists():
        before = json.loads(state.read_text())
        before["holders"].append(name)
        write_atomically(state, json.dumps(before))
        return
    mode = directory.stat().st_mode & 0o7777
    found = flags(directory) if os.geteuid() == 0 else None
    write_atomically(state, json.dumps({"mode": mode, "flags": found, "holders": [name]}))
    try:
        if found is not None:
            set_flags(directory, found | IMMUTABLE)
        else:
            directory.chmod(mode & ~0o222)
    except OSError:
        state.unlink()
        raise


def writable_again(name: str, directory: Path) -> None:
    """The directory is given back with the last of the faults that overlap."""
    state = shared(directory)
    if not state.exists():
        return
    before = json.loads(state.read_text())
    before["holders"] = [holder for holder in before["holders"] if holder != name]
    if before["holders"]:
        write_atomically(state, json.dumps(before))
        return
    if before["flags"] is not None:
        set_flags(directory, before["flags"])
    else:
        directory.chmod(before["mode"])
    state.unlink()


def busy(name: str, directory: Path, seconds: float, writers: int) -> None:
    folder = directory.parent / f".{name}"
    folder.mkdir()
    if is_refused(marker_of(name, directory)):
        folder.rmdir()
        claim(marker_of(name, directory))
    quiet = write_once(folder / "probe")
    pids = []
    for number in range(writers):
        pid = os.fork()
        if not pid:
            os.setsid()
            close_streams()
            ends = time.monotonic() + seconds
            while time.monotonic() < ends and folder.exists():
                with suppress(FileNotFoundError):  # it was ended early
                    write_once(folder / str(number))
            os._exit(0)
        pids.append(pid)
    (folder / "pids").write_text(" ".join(map(str, pids)))
    time.sleep(0.5)  # the writers have begun: this is how long a write takes at the same time
    print(f"a synced write of {BLOCK >> 20} MiB takes {quiet * 1e3:.0f} ms alone and "
          f"{write_once(folder / 'probe') * 1e3:.0f} ms beside {writers} writers")  # fmt: skip
    if not leave_behind():
        wait(folder, seconds)
        off(name, directory)


def wait(marker: Path, seconds: float) -> None:
    """Until the time is up, or it was ended early."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and marker.exists():
        time.sleep(0.2)


def write_once(path: Path) -> float:
    began = time.monotonic()
    with path.open("wb") as file:
        file.write(os.urandom(4096) * (BLOCK // 4096))
        file.flush()
        os.fsync(file.fileno())
    return time.monotonic() - began


def off(name: str, directory: Path, never: bool = False) -> None:
    """Also when it is off already. With `never` it may not begin later."""
    own, folder = marker_of(name, directory), directory.parent / f".{name}"
    has_not_begun = never and refuse(own)
    if not has_not_begun and (own.exists() or shared(directory).exists()):
        with locked_state(directory):
            writable_again(name, directory)
            own.unlink(missing_ok=True)
    writes = folder.exists()
    end_writers(name, folder)
    if has_not_begun and writes:
        own.unlink(missing_ok=True)


def end_writers(name: str, folder: Path) -> None:
    """Raises OSError where their folder cannot be removed."""
    with suppress(FileNotFoundError):
        pids = (folder / "pids").read_text().split()
        for pid in pids:
            command = Path(f"/proc/{pid}/cmdline")
            with suppress(FileNotFoundError, ProcessLookupError):
                if name in command.read_bytes().decode(errors="replace"):
                    os.kill(int(pid), signal.SIGKILL)
    deadline = time.monotonic() + REMOVE_S
    while folder.exists():
        # A writer that was just killed may still have its file open, or create it.
        shutil.rmtree(folder, ignore_errors=time.monotonic() < deadline)
        if folder.exists():
            time.sleep(RETRY_S)


def check(way: str, directory: Path) -> None:
    if not directory.is_dir():
        raise FileNotFoundError(errno.ENOENT, "this pod does not see it", str(directory))
    if not os.access(directory.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "this user may not write there", str(directory.parent))
    if way == "read-only" and os.geteuid() == 0 and not has_capability(CAP_LINUX_IMMUTABLE):
        why = "root without the capability LINUX_IMMUTABLE cannot make it read-only"
        raise PermissionError(errno.EPERM, why, str(directory))


def main() -> None:
    verb, name, given, *rest = sys.argv[1:]
    directory = Path(given).resolve()  # overlapping faults may name it by a link
    if verb == "check":
        check(name, directory)
    elif verb == "read-only":
        read_only(name, directory, float(rest[0]))
    elif verb == "busy":
        busy(name, directory, float(rest[0]), int(rest[1]))
    else:
        off(name, directory, "refuse" in rest)


sys.exit(ended(main))
