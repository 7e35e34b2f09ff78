"""At most one drill a cluster, by a file, where there is no Kubernetes to keep a Lease."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cockpit import paths
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line


def hold(cluster: str, holder: str, ttl_s: float) -> None:
    """Take it, or go on holding it. Raises CockpitError that names who has it."""
    with _locked(cluster) as (file, lease):
        now_s = time.time()
        owner = str(lease.get("holder", ""))
        if owner and owner != holder and now_s < float(lease.get("until_s", 0.0)):
            raise CockpitError(
                f"Another drill runs on {cluster}.",
                f"It is {one_line(owner)}'s: one at a time, else neither could be measured.",
                f"Wait for it, or remove {_path(cluster)} if it is nobody's.",
            )
        _write(file, {"holder": holder, "until_s": now_s + ttl_s})


def release(cluster: str, holder: str) -> None:
    """Let go, if it is still this holder's."""
    with _locked(cluster) as (file, lease):
        if lease.get("holder") == holder:
            _write(file, {})


def holder(cluster: str) -> str:
    """Who has it now; empty: nobody. Makes no file."""
    try:
        lease = json.loads(_path(cluster).read_bytes() or b"{}")
    except (FileNotFoundError, ValueError):
        return ""  # never held, or just being written
    if not isinstance(lease, dict) or time.time() >= float(lease.get("until_s", 0.0)):
        return ""
    return str(lease.get("holder", ""))


@contextmanager
def _locked(cluster: str) -> Iterator[tuple[int, dict[str, Any]]]:
    path = _path(cluster)
    paths.make_private(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            lease = json.loads(os.read(fd, 64 * 1024) or b"{}")
        except ValueError:
            lease = {}  # torn by a crash: then nobody holds it
        yield fd, lease if isinstance(lease, dict) else {}
    finally:
        os.close(fd)


def _write(fd: int, lease: dict[str, Any]) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    os.truncate(fd, 0)
    os.write(fd, json.dumps(lease).encode())


def _path(cluster: str) -> Path:
    return paths.state_dir() / "drills" / "leases" / re.sub(r"[^A-Za-z0-9._-]", "_", cluster)
