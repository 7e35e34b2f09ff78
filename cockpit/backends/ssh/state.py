"""The state of a cluster's hosts, as their agents send it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, convert, field
from msgspec.structs import replace

from cockpit.backends.local.spec import GroupSpec
from cockpit.backends.ssh.description import Host
from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.decoding.value_range import moment_s
from cockpit.model.error import UnreachableError, UsageError
from cockpit.model.secret import masked
from cockpit.model.text import clean, one_line

_POD = re.compile(r"[a-z0-9.-]{1,60}")


class ClusterRecord(Struct, frozen=True):
    """What is wanted; a file on the head's host, so that any cockpit sees it."""

    name: str
    uid: str
    created_s: float
    groups: tuple[GroupSpec, ...]
    recovery: str
    ports: tuple[int, int, int] = (0, 0, 0)
    """Of the GCS, the dashboard and Ray's client server."""
    revision: int = 0
    hosts: Mapping[str, str] = field(default_factory=dict)
    """By name, the hash of what its operator and `down` read about the host; empty for a cluster
    of an earlier version of cockpit."""

    def group(self, name: str) -> GroupSpec:
        """Raises UsageError for a group that the cluster does not have."""
        for group in self.groups:
            if group.name == name:
                return group
        names = ", ".join(group.name for group in self.groups) or "none"
        raise UsageError(
            f"There is no worker group {one_line(name)!r} in cluster {self.name}.",
            f"Groups: {names}.",
        )

    def with_group(self, changed: GroupSpec) -> ClusterRecord:
        groups = tuple(changed if group.name == changed.name else group for group in self.groups)
        return replace(self, groups=groups, revision=self.revision + 1)


class PodState(Struct, frozen=True):
    pod: Pod
    head_uid: str
    """Of the head that it was started for; the head's own is its own."""
    over: bool
    shown: bool
    started_s: float | None
    """When its `ray start` was started, by the host's clock."""
    terminating: bool
    ended_s: float | None
    reason: str

    @property
    def started(self) -> bool:
        return self.started_s is not None

    @property
    def life_s(self) -> float:
        """How long its `ray start` ran, if it has ended."""
        return self.ended_s - self.started_s if self.ended_s and self.started_s else 0.0

    def seen(self, ready: bool) -> Pod:
        """As cockpit shows it."""
        phase = PodPhase.RUNNING if ready else PodPhase.PENDING
        if self.terminating:
            phase = PodPhase.TERMINATING
        elif self.over:
            phase = PodPhase.FAILED
        reason = masked(one_line(self.reason)) or ("" if ready or self.over else "starting")
        return replace(
            self.pod,
            phase=phase,
            ready=ready and not self.over,
            reason="" if ready and not self.over else reason,
            ended_s=self.ended_s,
        )


class Token(Struct, frozen=True):
    """What the agent on the head's host answers to `token`."""

    token: str


class Ended(Struct, frozen=True):
    """What an agent answers to `remove`."""

    ended: int
    """Processes."""
    left: int
    """Processes that still run."""
    files: bool
    """Whether files are left."""


class Facts(Struct, frozen=True):
    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    """Their names, by nvidia-smi."""
    problems: tuple[str, ...] = ()
    kernel: str = ""
    boot: str = ""
    """Another text after each start of the host."""


class HostState(Struct, frozen=True):
    host: Facts = field(default_factory=Facts)
    cluster: ClusterRecord | None = None
    pods: tuple[PodState, ...] = ()
    operator: bool = False

    @property
    def living(self) -> PodState | None:
        return next((pod for pod in self.pods if not pod.over), None)


def host_state(raw: Mapping[str, Any], host: Host) -> HostState:
    """Decode the answer of the host's agent, which cannot claim to be another host.

    Raises UnreachableError for what another version of the agent sends.
    """
    try:
        state = convert(_cleaned(raw), HostState)
        _require_plausible(state)
    except ValueError as error:
        raise UnreachableError(
            f"The state of host {host.name} is not understood.",
            one_line(str(error)),
            "If another version of cockpit started it, use that one, or start it again.",
        ) from error
    # A name that the agent does not make could be another host's, or change a terminal.
    kept = [pod for pod in state.pods if _POD.fullmatch(pod.pod.name)]
    own = [pod for pod in kept if pod.pod.name.startswith(f"{host.name}-")]
    return replace(state, pods=tuple(replace(pod, pod=_described(pod.pod, host)) for pod in own))


def _require_plausible(state: HostState) -> None:
    """Raises ValueError for a time that has no date, which could not be shown."""
    times = [state.cluster.created_s] if state.cluster is not None else []
    for pod in state.pods:
        known = (pod.started_s, pod.ended_s, pod.pod.created_s, pod.pod.ended_s)
        times += [time_s for time_s in known if time_s is not None]
    for time_s in times:
        moment_s(time_s)


def _cleaned(raw: Any) -> Any:
    """Without control characters in any text."""
    if isinstance(raw, str):
        return clean(raw)
    if isinstance(raw, Mapping):
        return {key: _cleaned(value) for key, value in raw.items()}
    return [_cleaned(value) for value in raw] if isinstance(raw, list) else raw


def _described(pod: Pod, host: Host) -> Pod:
    """With the values of the description of the hosts: ranks are mapped to pods by address."""
    return replace(
        pod,
        group=host.group,
        node_type=NodeType.HEAD if host.is_head else NodeType.WORKER,
        ip=host.address,
        host=host.name,
        replica="",
        stage="",
        claims=(),
    )
