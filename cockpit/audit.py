"""The audit log: one JSON line for each change that was asked of a cluster."""

from __future__ import annotations

import getpass
import json
import os
import time
from pathlib import Path

from cockpit import paths
from cockpit.model.cluster import ClusterRef


def path() -> Path:
    return paths.state_dir() / "audit.jsonl"


def record(action: str, ref: ClusterRef, target: str, *, before: str = "", after: str = "") -> None:
    """Append who asked for what, when and where. The file is the user's own (mode 0600)."""
    line = {
        "at_s": round(time.time(), 3),
        "user": os.environ.get("SUDO_USER") or _user(),
        "cluster": str(ref),
        "action": action,
        "target": target,
        "before": before,
        "after": after,
    }
    where = path()
    where.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(where, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(fd, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a container's user need not be in the list of users
