"""A folder for the sockets of port-forwards and connections, and for keys."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cockpit.model.error import CockpitError

LONGEST_SOCKET_PATH = 107
"""Linux has room for this many bytes in a Unix socket's address."""
LONGEST_NAME = 24
"""Of a socket in it; ssh adds 17 characters to the name of a control socket while it binds it."""
PREFIX = "cockpit."
UNLOCKED_S = 60.0
"""A younger folder may not be locked yet."""


class PrivateFolder:
    """A folder that only we may enter, mode 0700, short enough for a socket's address.

    It is locked until it is removed. If its process is killed, the next one removes it. Raises
    CockpitError when there is no place for it.
    """

    def __init__(self) -> None:
        parent = _parent()
        for path in Path(parent).glob(f"{PREFIX}????????"):
            _remove_abandoned(path)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Also when it is called again."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


@contextmanager
def private_folder() -> Iterator[Path]:
    """For the time of a block. Raises CockpitError when there is no place for it."""
    folder = PrivateFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def _parent() -> str:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for parent in (runtime, tempfile.gettempdir(), "/tmp"):
        fits = len(f"{parent}/{PREFIX}12345678/".encode()) + LONGEST_NAME <= LONGEST_SOCKET_PATH
        if parent.startswith("/") and fits and os.access(parent, os.W_OK | os.X_OK):
            return parent
    raise CockpitError(
        "There is no folder for the sockets of connections.",
        "Neither XDG_RUNTIME_DIR nor TMPDIR nor /tmp can be written, or their paths are too long.",
    )


def _remove_abandoned(path: Path) -> None:
    """Remove a folder of a process that was killed."""
    with suppress(OSError):  # another user's, or another process removes it too
        found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            status = os.fstat(found)
            if status.st_uid == os.getuid() and time.time() - status.st_ctime > UNLOCKED_S:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(found)
