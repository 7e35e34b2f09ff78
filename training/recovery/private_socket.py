"""A Unix socket in a directory of this user. Messages keep their bounds, and carry descriptors."""

from __future__ import annotations

import os
import socket
from pathlib import Path

MESSAGE_BYTES = 1 << 20
FILES = 3
"""Descriptors of a message: standard input, output and errors."""


def opened(directory: Path) -> int:
    """Open the directory. Everyone may write to its parent, such as Ray's session directory, so
    another user could have made this one, to get the environment of the ranks. Raises OSError.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    found = os.fstat(descriptor)
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        os.close(descriptor)
        raise PermissionError(f"{directory} is open to other users")
    return descriptor


def listen(path: Path) -> socket.socket:
    """Raises OSError."""
    at = opened(path.parent)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path.unlink(missing_ok=True)
    listener.bind(_below(at, path.name))
    os.close(at)
    listener.listen()
    return listener


def connected(directory: Path, name: str, timeout_s: float) -> socket.socket:
    """`timeout_s`: of each operation. Raises OSError."""
    at = opened(directory)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        server.settimeout(timeout_s)
        server.connect(_below(at, name))
    except OSError:
        server.close()
        raise
    finally:
        os.close(at)
    return server


def _below(directory: int, name: str) -> str:
    return f"/proc/self/fd/{directory}/{name}"  # a socket's path ends at 107 characters
