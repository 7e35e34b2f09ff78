"""The status of a local cluster, written by the operator only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from cockpit.backends.local.files import ClusterFiles, clusters_dir, read_json
from cockpit.backends.local.pods.process import ProcessId, is_alive
from cockpit.backends.local.spec import ClusterSpec, check_name
from cockpit.config import paths
from cockpit.model.cluster import ClusterHealth, NodeType, Pod, PodPhase, WorkerGroup
from cockpit.model.error import CockpitError

T = TypeVar("T")

OPERATOR_DEAD = (
    "operator not running: nothing is replaced or scaled until the cluster is created again"
)


class PodStatus(Struct, frozen=True):
    """A pod with the fields that are specific to this backend."""

    pod: Pod
    process: ProcessId | None = None
    """Its `ray start`, which leads its session; None while it waits to be started."""
    ready_s: float | None = None


class Status(Struct, frozen=True):
    """Content of status.json."""

    at_s: float
    operator: ProcessId
    pods: tuple[PodStatus, ...]
    was_ready: bool = False
    """Whether everything was ready once: what is missing before that is starting, after it lost."""
    ray_version: str = ""


class LocalCluster(Struct, frozen=True):
    """One local cluster, up, half up or left behind."""

    name: str
    spec: ClusterSpec | None
    """None when it was interrupted before even that was written."""
    status: Status | None
    operator_alive: bool
    directory: Path
    """Its state directory."""

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Without its operator, a pod whose process has ended is shown as failed."""
        if self.status is None:
            return ()
        if self.operator_alive:
            return tuple(item.pod for item in self.status.pods)
        return tuple(_checked(item) for item in self.status.pods)

    @property
    def groups(self) -> tuple[WorkerGroup, ...]:
        ready: dict[str, int] = {}
        for pod in self.pods:
            ready[pod.group] = ready.get(pod.group, 0) + pod.ready
        return tuple(
            WorkerGroup(
                name=group.name,
                desired=group.desired,
                ready=ready.get(group.name, 0),
                min=group.min,
                max=group.max,
                resources=group.resources,
            )
            for group in (self.spec.groups if self.spec else ())
        )

    @property
    def head(self) -> Pod | None:
        heads = [pod for pod in self.pods if pod.node_type is NodeType.HEAD]
        living = [pod for pod in heads if pod.phase in (PodPhase.PENDING, PodPhase.RUNNING)]
        return next(reversed(living or heads), None)

    @property
    def health(self) -> ClusterHealth:
        if self.spec is None or self.status is None:
            return ClusterHealth.STARTING if self.operator_alive else ClusterHealth.DOWN
        head_ready = self.head is not None and self.head.ready
        if not head_ready:
            starting = self.operator_alive and not self.status.was_ready
            return ClusterHealth.STARTING if starting else ClusterHealth.DOWN
        if all(group.ready >= group.desired for group in self.groups):
            return ClusterHealth.READY if self.operator_alive else ClusterHealth.DEGRADED
        return ClusterHealth.DEGRADED if self.status.was_ready else ClusterHealth.STARTING

    @property
    def message(self) -> str:
        """One line: what is wrong or awaited; empty when all is well."""
        if not self.operator_alive:
            return OPERATOR_DEAD
        waiting = [pod for pod in self.pods if not pod.ready and pod.phase is not PodPhase.FAILED]
        if not waiting:
            return ""
        names = ", ".join(
            f"{pod.name} ({pod.reason or pod.phase.value.lower()})" for pod in waiting[:3]
        )
        more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
        return f"not ready: {names}{more}"

    @property
    def dashboard_url(self) -> str:
        return self.spec.dashboard_url if self.spec else ""

    @property
    def token_path(self) -> Path:
        return ClusterFiles(self.directory).token

    @property
    def ray_version(self) -> str:
        return self.status.ray_version if self.status else ""


def read_cluster(name: str) -> LocalCluster | None:
    """The present state by the files and /proc, or None when there is no such cluster."""
    files = ClusterFiles.of(name)
    if not files.directory.is_dir():
        return None
    spec, status = read_spec(files), read_status(files)
    return LocalCluster(
        name=name,
        spec=spec,
        status=status,
        operator_alive=status is not None and is_alive(status.operator),
        directory=files.directory,
    )


def status(name: str) -> LocalCluster | None:
    """The current cluster with this name, or None. Reads files and /proc: a millisecond."""
    return read_cluster(check_name(name))


def list_clusters() -> tuple[LocalCluster, ...]:
    """All that are up, half up or left behind, by name."""
    if not clusters_dir().is_dir():
        return ()
    names = sorted(path.name for path in clusters_dir().iterdir() if path.is_dir())
    clusters = (read_cluster(name) for name in names)
    return tuple(cluster for cluster in clusters if cluster is not None)


def read_spec(files: ClusterFiles) -> ClusterSpec | None:
    return _read(files.spec, ClusterSpec)


def read_status(files: ClusterFiles) -> Status | None:
    return _read(files.status, Status)


def write_status(files: ClusterFiles, status: Status) -> None:
    paths.replace_file(files.status, json.dumps(to_builtins(status)))


def _read(path: Path, kind: type[T]) -> T | None:
    raw = read_json(path)
    try:
        return None if raw is None else convert(raw, kind)
    except (KeyError, TypeError, ValueError) as error:
        raise CockpitError(
            f"{path} is not what this version writes.",
            f"{type(error).__name__}: {error}",
            f"Remove the cluster: cockpit local down {path.parent.name}",
        ) from error


def _checked(item: PodStatus) -> Pod:
    if item.pod.phase is PodPhase.FAILED or is_alive(item.process):
        return item.pod
    return replace(
        item.pod, phase=PodPhase.FAILED, ready=False, reason="ended while no operator was running"
    )
