"""The cluster's record on its head's host, and the operator's lock on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import shutil
import signal
import socket
import time
from typing import Any

from cockpit.backends.local.pods.process import Found, end, find, identify, kill
from cockpit.backends.ssh.agent.place import Place, write_token
from cockpit.backends.ssh.agent.streams import put
from cockpit.model.error import ReplacedError, UsageError

LEASE_S = 30.0
"""Without it, a connection that the network dropped would hold the lock for hours."""
LOCK_TRIES = 5
CHECK_S = 0.1


def init(place: Place, request: dict[str, Any]) -> None:
    """Make the cluster on its head's host: its record, with free ports unless it has some, and its
    token.
    """
    place.make()
    with place.locked():
        if (there := place.cluster) is not None:
            raise UsageError(f"Cluster {there['name']} is already up.")
        write_token(place)
        with contextlib.ExitStack() as stack:
            free = [bound(stack.enter_context(socket.socket())) for _ in range(3)]
        ports = request["cluster"]["ports"] if any(request["cluster"]["ports"]) else free
        place.write("cluster.json", request["cluster"] | {"ports": ports})


def bound(one: socket.socket) -> int:
    """Bind it to a free port below those that outgoing connections use, and return that."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError):
            one.bind(("", port))
            return port


def token(place: Place, request: dict[str, Any]) -> None:
    put({"token": place.token.read_text()})


def change(place: Place, request: dict[str, Any]) -> None:
    """Replace the cluster's record, if it was not changed since it was read."""
    with place.locked():
        there = place.cluster
        if there is None or there["uid"] != request["cluster"]["uid"]:
            raise ReplacedError("Cluster", request["cluster"]["name"])
        if there["revision"] != request["revision"]:
            put({"conflict": True})
            return
        place.write("cluster.json", request["cluster"])
    put({})


def lead(place: Place, request: dict[str, Any]) -> None:
    """Hold the operator's lock until the input ends, or sends nothing for LEASE_S."""
    fd = os.open(place.root / "operator.lock", os.O_RDWR | os.O_CREAT, 0o600)
    for left in reversed(range(LOCK_TRIES)):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:  # also while `has_operator` holds it, for an instant
            if not left:
                raise UsageError("Another operator keeps this cluster.") from None
            time.sleep(CHECK_S)
    os.ftruncate(fd, 0)
    os.write(fd, str(os.getpid()).encode())
    put({})
    while select.select([0], [], [], LEASE_S)[0] and os.read(0, 4096):
        pass


def has_operator(place: Place) -> bool:
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(place.root / "operator.lock", os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
    return False


def retire(place: Place, request: dict[str, Any]) -> None:
    """Remove the cluster's record, and wait until its operator has stopped, or end it."""
    (place.root / "cluster.json").unlink(missing_ok=True)
    deadline = time.monotonic() + request["wait_s"]
    while has_operator(place) and time.monotonic() < deadline:
        time.sleep(CHECK_S)
    if has_operator(place) and (pid := (place.root / "operator.lock").read_text()):
        process = identify(int(pid))  # its connection: without it, it can change nothing
        if process is not None:
            kill(process, signal.SIGKILL)
    put({})


def remove(place: Place, request: dict[str, Any]) -> None:
    """End every process of the cluster on this host, and remove its files."""
    root = str(place.root)
    records = place.pods() if place.root.is_dir() else []
    uids = {record["cluster"] for record in records} | {request["cluster"]} - {""}
    traces = [place.trace(record) for record in records]

    def left() -> list[Found]:
        return [one for uid in uids for one in find(uid, traces, root)]

    ended = end(left)
    for _ in range(50):  # a process between fork and exec has no marker yet, and may write
        shutil.rmtree(place.root, ignore_errors=True)
        if not place.root.exists():
            break
        ended += end(left)
        time.sleep(CHECK_S)
    with contextlib.suppress(OSError):
        place.root.parent.rmdir()  # another cluster may be in it
    put({"ended": ended, "left": len(left()), "files": place.root.exists()})
