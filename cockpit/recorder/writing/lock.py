"""One writer a recording: a lock that goes with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class LockedError(Exception):
    """Somebody else has it."""


class Lock:
    """On a file beside the recording. SQLite's own locks come and go with each commit."""

    def __init__(self, recording: Path) -> None:
        self.path = recording.with_name(f".{recording.name}.lock")
        self._fd: int | None = None

    def take(self) -> None:
        """Raises LockedError, or OSError where no file can be made."""
        if self._fd is not None:
            return
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever had it before may have removed the file between the two calls.
                if os.fstat(fd).st_nlink:
                    self._fd = fd
                    return
            except BlockingIOError as error:
                os.close(fd)
                raise LockedError from error
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def release(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                self.path.unlink(missing_ok=True)
            finally:
                os.close(fd)


def is_held(recording: Path) -> bool:
    """Whether a recorder writes this file now."""
    path = recording.with_name(f".{recording.name}.lock")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)
