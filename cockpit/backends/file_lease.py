"""At most one drill a cluster, by a file, where there is no Kubernetes to keep a Lease.

The file may be on a home that several nodes share: as on Kubernetes, a holder on another node
has ended once its file was observed unchanged for its time to live. One on this node has ended with
its process.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, json

from cockpit.config import paths
from cockpit.config.process_identity import ProcessId, ProcessState
from cockpit.model.error import CockpitError, LeaseHeldError
from cockpit.model.text import one_line

LARGEST_BYTES = 64 * 1024
SKEW_S = 5.0
"""A renewal that is further in the future than this was written by another clock."""


class _Lease(Struct, frozen=True, omit_defaults=True):
    """The content of the file; empty: no holder."""

    holder: str = ""
    renewal: str = ""
    renewed_s: float = 0.0
    ttl_s: float = 0.0
    process: Any = None
    """A ProcessId, unless another version of cockpit wrote it."""

    @property
    def life(self) -> ProcessState:
        try:
            return convert(self.process, ProcessId).life
        except ValueError:
            return ProcessState.UNKNOWN

    @property
    def is_current(self) -> bool:
        return -SKEW_S <= time.time() - self.renewed_s < self.ttl_s


def hold(cluster: str, holder: str, ttl_s: float, expired: str = "") -> None:
    """Take it, or renew it. As `Backend.hold`."""
    with _locked(cluster) as (fd, lease):
        owner = lease.holder
        is_free = not owner or owner == holder or (expired and expired == lease.renewal)
        if not is_free and lease.life is not ProcessState.ENDED:
            raise LeaseHeldError(
                f"Another drill runs on {cluster}.",
                f"Held by {one_line(owner)}: one drill at a time.",
                f"Wait for it, or remove {_path(cluster)} if its holder has ended.",
                renewal=lease.renewal,
                ttl_s=lease.ttl_s or ttl_s,
                current=lease.is_current,
            )
        renewal = f"{time.time_ns()}-{os.getpid()}"
        _write(fd, _Lease(holder, renewal, time.time(), ttl_s, ProcessId.own()))


def release(cluster: str, holder: str) -> None:
    """Give it up, if it is still this holder's."""
    with _locked(cluster) as (fd, lease):
        if lease.holder == holder:
            _write(fd, _Lease())


def holder(cluster: str) -> str:
    """Who has it now, as far as this machine's clock shows; empty: no drill. Creates no file."""
    try:
        lease = _read(_path(cluster).read_bytes())
    except OSError:
        return ""  # never held
    return lease.holder if lease.is_current and lease.life is not ProcessState.ENDED else ""


def _read(text: bytes) -> _Lease:
    try:
        return json.decode(text, type=_Lease)
    except (ValueError, RecursionError):
        return _Lease()  # torn by a crash of the machine, and its holder with it


@contextmanager
def _locked(cluster: str) -> Iterator[tuple[int, _Lease]]:
    path = _path(cluster)
    try:
        paths.make_private(path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd, _read(os.read(fd, LARGEST_BYTES))
        finally:
            os.close(fd)
    except OSError as error:
        raise CockpitError(
            f"The lease of {cluster} in {path} cannot be written.",
            error.strerror or str(error),
            "Free some disk space there, or set XDG_STATE_HOME to another directory of yours.",
        ) from error


def _write(fd: int, lease: _Lease) -> None:
    """Over what is there, and cut after it: on a full disk a renewal needs no new block."""
    text = json.encode(lease)
    os.pwrite(fd, text, 0)
    os.ftruncate(fd, len(text))
    os.fsync(fd)


def _path(cluster: str) -> Path:
    return paths.state_dir() / "drills" / "leases" / re.sub(r"[^A-Za-z0-9._-]", "_", cluster)
