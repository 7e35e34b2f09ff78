"""Make a directory read-only, or its disk busy, for a while.

    storage.py check DIRECTORY
    storage.py read-only NAME DIRECTORY SECONDS
    storage.py busy NAME DIRECTORY SECONDS WRITERS
    storage.py off NAME DIRECTORY

Read-only is the immutable flag of the directory for root, who may write whatever its mode is, and
its mode for everybody else; what it was before is in a file beside it. Busy is a number of
processes that write and sync a file of a few megabytes each, again and again, in a folder of their
own that goes with them. A process that is left behind ends either by itself.
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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h, on 64 bits."""
IMMUTABLE = 0x10
BLOCK = 4 << 20


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


def note(name: str, directory: Path) -> Path:
    """Beside the directory, which cannot be written to meanwhile."""
    return directory.parent / f".{name}.json"


def read_only(name: str, directory: Path, seconds: float) -> None:
    mode = directory.stat().st_mode & 0o7777
    before = flags(directory) if os.geteuid() == 0 else None
    note(name, directory).write_text(json.dumps({"mode": mode, "flags": before}))
    try:
        if before is not None:
            set_flags(directory, before | IMMUTABLE)
        else:
            directory.chmod(mode & ~0o222)
    except OSError:
        note(name, directory).unlink()
        raise
    print(f"{directory} is read-only for {seconds:g} s")
    if not leave_behind():
        wait(note(name, directory), seconds)
        off(name, directory)


def busy(name: str, directory: Path, seconds: float, writers: int) -> None:
    folder = directory.parent / f".{name}"
    folder.mkdir()
    quiet = write_once(folder / "probe")
    pids = []
    for number in range(writers):
        pid = os.fork()
        if not pid:
            detach()
            ends = time.monotonic() + seconds
            while time.monotonic() < ends and folder.exists():
                with suppress(FileNotFoundError):  # it was ended early
                    write_once(folder / str(number))
            os._exit(0)
        pids.append(pid)
    (folder / "pids").write_text(" ".join(map(str, pids)))
    time.sleep(0.5)  # the writers have begun by then: this is how long a write takes beside them
    print(f"a synced write of {BLOCK >> 20} MiB takes {quiet * 1e3:.0f} ms alone and "
          f"{write_once(folder / 'probe') * 1e3:.0f} ms beside {writers} writers")  # fmt: skip
    if not leave_behind():
        wait(folder, seconds)
        off(name, directory)


def wait(marker: Path, seconds: float) -> None:
    """Until the time is up, or somebody has ended it early."""
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


def off(name: str, directory: Path) -> None:
    """Also when it is off already."""
    with suppress(FileNotFoundError):
        before = json.loads(note(name, directory).read_text())
        if before["flags"] is not None:
            set_flags(directory, before["flags"])
        else:
            directory.chmod(before["mode"])
        note(name, directory).unlink()
    folder = directory.parent / f".{name}"
    with suppress(FileNotFoundError):
        pids = (folder / "pids").read_text().split()
        for pid in pids:
            command = Path(f"/proc/{pid}/cmdline")
            with suppress(FileNotFoundError, ProcessLookupError):
                if name in command.read_bytes().decode(errors="replace"):
                    os.kill(int(pid), signal.SIGKILL)
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def leave_behind() -> bool:
    """True in the process that answers, False in the one that stays and is nobody's child."""
    sys.stdout.flush()
    if os.fork():
        return True
    detach()
    return False


def detach() -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def check(directory: Path) -> None:
    if not directory.is_dir():
        raise FileNotFoundError(errno.ENOENT, "this pod does not see it", str(directory))
    if not os.access(directory.parent, os.W_OK):
        raise PermissionError(errno.EACCES, "this user may not write there", str(directory.parent))


def main(argv: Sequence[str]) -> int:
    verb, rest = argv[0], argv[1:]
    try:
        if verb == "check":
            check(Path(rest[0]))
        elif verb == "read-only":
            read_only(rest[0], Path(rest[1]), float(rest[2]))
        elif verb == "busy":
            busy(rest[0], Path(rest[1]), float(rest[2]), int(rest[3]))
        else:
            off(rest[0], Path(rest[1]))
    except PermissionError as error:
        print(error, file=sys.stderr)
        return 3
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


sys.exit(main(sys.argv[1:]))
