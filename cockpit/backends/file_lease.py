"""At most one drill a cluster, by a file, where there is no Kubernetes to keep a Lease.

The file may be on a home that several nodes share: as on Kubernetes, a holder on another node
has ended once its file was observed unchanged for its time to live. One on this node has ended with
its process.
"""

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

from msgspec import to_builtins

from cockpit.config import paths
from cockpit.config.process_identity import ProcessId, ProcessState
from cockpit.model.error import CockpitError, LeaseHeldError
from cockpit.model.text import one_line

LARGEST_BYTES = 64 * 1024
SKEW_S = 5.0
"""A renewal that is further in the future than this was written by another clock."""


def hold(cluster: str, holder: str, ttl_s: float, expired: str = "") -> None:
    """Take it, or renew it. As `Backend.hold`."""
    with _locked(cluster) as (fd, lease):
        owner, renewal = _text(lease, "holder"), _text(lease, "renewal")
        is_free = not owner or owner == holder or (expired and expired == renewal)
        if not is_free and _life(lease) is not ProcessState.ENDED:
            raise LeaseHeldError(
                f"Another drill runs on {cluster}.",
                f"Held by {one_line(owner)}: one drill at a time.",
                f"Wait for it, or remove {_path(cluster)} if its holder has ended.",
                renewal=renewal,
                ttl_s=_number(lease, "ttl_s") or ttl_s,
                current=_is_current(lease),
            )
        lease = {
            "holder": holder,
            "renewal": f"{time.time_ns()}-{os.getpid()}",
            "renewed_s": time.time(),
            "ttl_s": ttl_s,
            "process": to_builtins(ProcessId.own()),
        }
        _write(fd, lease)


def release(cluster: str, holder: str) -> None:
    """Give it up, if it is still this holder's."""
    with _locked(cluster) as (fd, lease):
        if lease.get("holder") == holder:
            _write(fd, {})


def holder(cluster: str) -> str:
    """Who has it now, as far as this machine's clock shows; empty: no drill. Creates no file."""
    try:
        lease = json.loads(_path(cluster).read_bytes() or b"{}")
    except (OSError, ValueError, RecursionError):
        return ""  # never held, or just being written
    if not isinstance(lease, dict) or not _is_current(lease) or _life(lease) is ProcessState.ENDED:
        return ""
    return _text(lease, "holder")


def _life(lease: dict[str, Any]) -> ProcessState:
    try:
        return ProcessId(**lease["process"]).life
    except (KeyError, TypeError):
        return ProcessState.UNKNOWN


def _is_current(lease: dict[str, Any]) -> bool:
    age_s = time.time() - _number(lease, "renewed_s")
    return -SKEW_S <= age_s < _number(lease, "ttl_s")


def _text(lease: dict[str, Any], key: str) -> str:
    value = lease.get(key)
    return value if isinstance(value, str) else ""


def _number(lease: dict[str, Any], key: str) -> float:
    value = lease.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


@contextmanager
def _locked(cluster: str) -> Iterator[tuple[int, dict[str, Any]]]:
    path = _path(cluster)
    try:
        paths.make_private(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                lease = json.loads(os.read(fd, LARGEST_BYTES) or b"{}")
            except (ValueError, RecursionError):
                lease = {}  # torn by a crash of the machine, and its holder with it
            yield fd, lease if isinstance(lease, dict) else {}
        finally:
            os.close(fd)
    except OSError as error:
        raise CockpitError(
            f"The lease of {cluster} in {path} cannot be written.",
            error.strerror or str(error),
            "Make room there, or set XDG_STATE_HOME to a directory of yours.",
        ) from error


def _write(fd: int, lease: dict[str, Any]) -> None:
    """Over what is there, and cut after it: on a full disk a renewal needs no new block."""
    text = json.dumps(lease).encode()
    os.pwrite(fd, text, 0)
    os.ftruncate(fd, len(text))
    os.fsync(fd)


def _path(cluster: str) -> Path:
    return paths.state_dir() / "drills" / "leases" / re.sub(r"[^A-Za-z0-9._-]", "_", cluster)
