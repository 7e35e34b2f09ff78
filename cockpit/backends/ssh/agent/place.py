"""The files of one cluster on a host.

`/tmp/cockpit-UID/h-KEY/` (0700) has everything, KEY being a hash of the cluster's and the host's
name; a Unix socket's path is short, so it is under /tmp:

    agent.py        the text of the agent, for the supervisor
    cluster.json    on the head: what is wanted
    operator.lock   on the head: held while an operator is connected
    token           Ray's authentication token (0600)
    POD.json        the pod as it was requested, and how it ended
    POD.stop        when the pod is deleted: when its grace period ends
    POD.log         the output of its `ray start`
    XXXXX/          its directory: Ray's --temp-dir
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cockpit.backends.local.pods.process import Found, PodTrace, ProcessId, find, is_alive
from cockpit.backends.ssh.agent.streams import secret
from cockpit.model.error import CockpitError, ReplacedError, UsageError


class Place:
    """The files of one cluster on this host."""

    def __init__(self, key: str) -> None:
        self.root = Path("/tmp") / f"cockpit-{os.getuid()}" / f"h-{key}"

    def make(self) -> None:
        """Make it, after checking that it is ours alone: anyone may make names in /tmp."""
        for directory in (self.root.parent, self.root):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
            found = directory.lstat()
            mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if not mine or found.st_mode & 0o077:
                raise CockpitError(
                    f"{directory} on {socket.gethostname()} is not a directory of yours alone.",
                    f"It belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}.",
                    "Have it removed; cockpit makes it again.",
                )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One change at a time."""
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    @property
    def cluster(self) -> dict[str, Any] | None:
        return read_json(self.root / "cluster.json")

    @property
    def token(self) -> Path:
        return self.root / "token"

    def pods(self) -> list[dict[str, Any]]:
        """The records of all pods, the oldest first."""
        found = [read_json(path) for path in self.root.glob("*.json") if path.stem != "cluster"]
        listed = [record for record in found if record is not None]
        return sorted(listed, key=lambda record: float(record["pod"]["created_s"]))

    def pod(self, name: str, uid: str = "") -> dict[str, Any]:
        """Raises UsageError if there is none that lives, ReplacedError for one of another UID."""
        listed = {record["pod"]["name"]: record for record in self.pods()}
        record = listed.get(name)
        if record is None or not lives(record):
            reason = (record or {}).get("reason", "")
            raise UsageError(
                f"There is no running pod {name!r} on its host.",
                f"It has ended: {reason}." if record else "It has ended, or never was there.",
                "cockpit pods lists them.",
            )
        if uid and record["pod"]["uid"] != uid:
            raise ReplacedError("Pod", name)
        return record

    def directory(self, pod: str) -> Path:
        return self.root / pod.rpartition("-")[2]

    def file(self, pod: str, end: str) -> Path:
        return self.root / f"{pod}.{end}"

    def write(self, name: str, content: dict[str, Any] | float) -> None:
        """So that a reader sees the old content or the new."""
        part = self.root / f".{name}.{os.getpid()}"
        part.write_text(json.dumps(content))
        part.replace(self.root / name)

    def trace(self, record: dict[str, Any]) -> PodTrace:
        name, process = record["pod"]["name"], record.get("process")
        session = process[0] if process and is_alive(ProcessId(*process)) else 0
        return PodTrace(name, str(self.directory(name)), session)

    def processes(self, record: dict[str, Any]) -> list[Found]:
        """Those of the pod, without its supervisor."""
        name = record["pod"]["name"]
        trace = self.trace(record)
        return [one for one in find(record["cluster"], [trace], trace.directory) if one.pod == name]


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) else None


def lives(record: dict[str, Any]) -> bool:
    """Until its supervisor has recorded its end; one that was killed ends its pod too."""
    process = record.get("supervisor")
    return record.get("ended_s") is None and process is not None and is_alive(ProcessId(*process))


def ended_s(record: dict[str, Any]) -> float:
    return float(record.get("ended_s") or 0.0)


def write_token(place: Place) -> None:
    fd = os.open(place.token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(secret())


def remove_pod(place: Place, record: dict[str, Any], *, files: bool) -> None:
    name = record["pod"]["name"]
    shutil.rmtree(place.directory(name), ignore_errors=True)
    for suffix in ("json", "log", "stop") if files else ():
        place.file(name, suffix).unlink(missing_ok=True)
