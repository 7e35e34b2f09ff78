"""A folder for the sockets of port-forwards and connections."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cockpit.model.error import CockpitError

LONGEST_SOCKET_PATH = 107
"""Linux has room for this many bytes in a Unix socket's address."""
LONGEST_NAME = 24
"""Of a socket in it; ssh adds 17 characters to the name of a control socket while it binds it."""


def private_folder() -> Path:
    """Make a folder that only we may enter, mode 0700, short enough for a socket's address."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for parent in (runtime, tempfile.gettempdir(), "/tmp"):
        fits = len(f"{parent}/cockpit-12345678/".encode()) + LONGEST_NAME <= LONGEST_SOCKET_PATH
        if parent.startswith("/") and fits and os.access(parent, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix="cockpit-", dir=parent))
    raise CockpitError(
        "There is no folder for the sockets of connections.",
        "Neither XDG_RUNTIME_DIR nor TMPDIR nor /tmp can be written, or their paths are too long.",
    )
