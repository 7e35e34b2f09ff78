"""A lock file for processes of one pod, or of several pods on shared storage (flock(2))."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

RETRY_S = 0.05


@contextmanager
def locked(path: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock; it ends with the process, however that ends.

    The file may be removed by the holder of the lock. Raises TimeoutError after `wait_s`, and
    OSError where the file system has no locks.
    """
    deadline = time.monotonic() + wait_s
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_file(handle, path):
                break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(handle)
                raise TimeoutError(
                    errno.ETIMEDOUT, f"another process has held it for {wait_s:g} s", str(path)
                ) from None
            time.sleep(RETRY_S)
        except OSError:
            os.close(handle)
            raise
        os.close(handle)
    try:
        yield
    finally:
        os.close(handle)


def is_file(handle: int, path: Path) -> bool:
    """Whether the open file is still the one of this path, and was not removed before the lock."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    own = os.fstat(handle)
    return (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino)


def write_atomically(path: Path, text: str) -> None:
    """Replace the file atomically; it is on disk when this returns."""
    temporary = path.with_name(f"{path.name}.part")
    with temporary.open("w") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    temporary.replace(path)
    sync(path.parent)


def sync(directory: Path) -> None:
    """A rename is on disk once its directory is."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without it
            raise
    finally:
        os.close(handle)
