"""What was made in the cloud for a cluster: a locked, versioned file in the state directory.

Each thing is recorded under its unique name before it is made. So after a crash at any point, what
was made is found in the account by that name, also if its id was not recorded.

`~/.local/state/cockpit/lambda/CLUSTER/` (0700) has:

    state.json    this file; it contains no credential
    lock          held by `up`, `down` and, for each change, by the spending guard
    hosts.toml    the cluster for the backend `ssh`
    ssh_config    and known_hosts: the instances' names and host keys
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field, json
from msgspec.structs import replace

from cockpit.backends.lambda_cloud.limits import Spending
from cockpit.config import paths
from cockpit.model.error import CockpitError

VERSION = 1
HOUR_S = 3600.0


class Node(Struct, frozen=True):
    """One instance, from the intent to launch it until its end."""

    host: str
    """Its name in the description."""
    name: str
    """Its name in the account: unique."""
    type: str
    cents: int
    """Per hour."""
    host_keys: tuple[str, ...]
    """Public; one for each attempt to launch it."""
    id: str = ""
    since_s: float | None = None
    """When it was launched, at the earliest."""
    ended_s: float | None = None
    address: str = ""
    """Where Ray listens."""
    ip: str = ""
    """Where ssh connects."""

    def cost(self, now_s: float) -> float:
        """In cents, by this host's clock: the invoice may differ."""
        if self.since_s is None:
            return 0.0
        until_s = now_s if self.ended_s is None else self.ended_s
        return max(0.0, until_s - self.since_s) / HOUR_S * self.cents


class State(Struct, frozen=True):
    cluster: str
    description: str
    """The path of the file that `up` was called with."""
    region: str
    uid: str = field(default_factory=lambda: secrets.token_hex(4))
    nodes: tuple[Node, ...] = ()
    """Those that ended too: they have cost money."""
    ssh_key: str = ""
    """The name of the key that was added; empty: the account had it."""
    ruleset: str = ""
    """The name of the firewall ruleset, if there is one."""
    file_system: str = ""
    spending: Spending = Spending()
    """The description's, for the spending guard while the file cannot be read."""
    api_key_file: str = ""
    """Also the description's; the path alone."""
    idle_since_s: float | None = None
    notice: str = ""
    """Of the spending guard."""
    version: int = VERSION

    @property
    def alive(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.ended_s is None)

    def node(self, host: str) -> Node | None:
        return next((node for node in self.alive if node.host == host), None)

    def named(self, kind: str) -> str:
        """A name in the account that only this cluster has."""
        return f"cockpit-{self.uid}-{kind}".replace(".", "-")

    def with_node(self, changed: Node) -> State:
        others = [changed if node.name == changed.name else node for node in self.nodes]
        if changed not in others:
            others.append(changed)
        return replace(self, nodes=tuple(others))

    def spent(self, now_s: float) -> float:
        return sum(node.cost(now_s) for node in self.nodes)

    @property
    def cents_per_hour(self) -> int:
        return sum(node.cents for node in self.alive if node.since_s is not None)


def folder(cluster: str) -> Path:
    return paths.state_dir() / "lambda" / cluster


def load(cluster: str) -> State | None:
    """Raises CockpitError for a file that cannot be read, or of another version."""
    path = folder(cluster) / "state.json"
    try:
        found = json.decode(path.read_bytes(), type=dict)
        if found.get("version") == VERSION:
            return json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise CockpitError(
            f"The record of cluster {cluster} in {path} cannot be read.",
            why,
            "Its instances may still cost money: look at the account's list of instances.",
        ) from error
    raise CockpitError(
        f"The record of cluster {cluster} in {path} is of another version of cockpit.",
        f"It has version {found.get('version')!r}, and this one reads {VERSION}.",
        "Use the version of cockpit that made the cluster.",
    )


class Store:
    """The record while it is locked. `changed` writes it durably."""

    def __init__(self, cluster: str) -> None:
        self.folder = folder(cluster)
        self.state = load(cluster)

    def changed(self, state: State) -> State:
        paths.replace_file(self.folder / "state.json", json.encode(state), durable=True)
        self.state = state
        return state

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            paths.replace_file(self.folder / name, text, durable=True)

    def remove(self) -> None:
        """The record is the last: while it is there, `down` can be repeated."""
        for name in ("hosts.toml", "ssh_config", "known_hosts", "guard.pid"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "state.json").unlink(missing_ok=True)
        self.state = None
        paths.sync_directory(self.folder)


@contextmanager
def locked(cluster: str, wait_s: float = 0.0) -> Iterator[Store]:
    """Raises CockpitError while another process has the lock for longer than `wait_s`."""
    place = folder(cluster)
    paths.make_private(place)
    fd = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise CockpitError(
                        f"Another process changes cluster {cluster}.",
                        "A cockpit up, a cockpit down or its spending guard runs on this host.",
                        "Wait until it has ended, then try again.",
                    ) from None
                time.sleep(0.2)
        os.ftruncate(fd, 0)
        yield Store(cluster)
    finally:
        os.close(fd)
