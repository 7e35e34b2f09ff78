"""Parse a RayCluster, and predict which objects the operator will create for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from cockpit.backends.kuberay.api.fields import (
    boolean,
    items,
    mapping,
    number,
    quantity,
    seconds,
    text,
    whole,
)
from cockpit.backends.kuberay.waiting.kueue import QUEUE_LABEL
from cockpit.model.cluster import Resources

GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi")
UNBOUNDED = 2_147_483_647
"""The CRD's default for a group without a maximum."""


class GroupSpec(Struct, frozen=True):
    """One worker group as the RayCluster wants it. Counts are replicas."""

    name: str
    replicas: int
    min: int
    max: int
    hosts: int = 1
    to_delete: tuple[str, ...] = ()
    """workersToDelete: stays in the object after it was acted on."""
    suspended: bool = False
    resources: Resources = field(default_factory=Resources)

    @property
    def wanted(self) -> int:
        """Replicas as the operator takes them: within the bounds."""
        return max(self.min, min(self.replicas, self.max))


class RayCluster(Struct, frozen=True):
    """The parsed fields of a RayCluster. The sticky `status.state` is not included."""

    name: str
    namespace: str
    uid: str
    created_s: float
    groups: tuple[GroupSpec, ...]
    ray_version: str = ""
    autoscaled: bool = False
    suspended: bool = False
    token_secret: str = ""
    """The Secret with Ray's token that the object names; empty when token authentication is off.

    The cluster's author sets it: see `operator_secrets`.
    """
    head_service: str = ""
    tls: bool = False
    """Whether the dashboard uses https."""
    ready_workers: int = 0
    conditions: tuple[tuple[str, bool, str], ...] = ()
    """Type, whether it holds, message."""
    deleting: bool = False
    queue: str = ""
    """The LocalQueue of Kueue that its label names."""

    @property
    def operator_secrets(self) -> frozenset[str]:
        """The names that KubeRay gives the Secret that it creates for this cluster.

        Of a long name the end is kept, and the first character is a letter (`CheckName` of
        KubeRay's util.go).
        """
        short = self.name[-50:]
        return frozenset({self.name, short if short[:1].isalpha() else f"r{short[1:]}"})

    def condition(self, kind: str) -> tuple[bool, str] | None:
        return next(
            ((holds, message) for each, holds, message in self.conditions if each == kind), None
        )


def ray_cluster(raw: Any) -> RayCluster:
    meta, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
    name = text(meta, "name")
    auth = mapping(spec, "authOptions")
    secret = text(auth, "secretName") or name if text(auth, "mode") == "token" else ""
    environment = _environment(mapping(spec, "headGroupSpec"))
    return RayCluster(
        name=name,
        namespace=text(meta, "namespace"),
        uid=text(meta, "uid"),
        created_s=seconds(meta.get("creationTimestamp")),
        groups=tuple(_group(each) for each in items(spec, "workerGroupSpecs")),
        ray_version=text(spec, "rayVersion"),
        autoscaled=boolean(spec, "enableInTreeAutoscaling"),
        suspended=boolean(spec, "suspend"),
        token_secret=secret,
        head_service=text(mapping(status, "head"), "serviceName") or f"{name}-head-svc",
        tls=environment.get("RAY_DASHBOARD_USE_TLS", "") in ("1", "true"),
        ready_workers=whole(status, "readyWorkerReplicas"),
        conditions=tuple(
            (text(each, "type"), text(each, "status") == "True", text(each, "message"))
            for each in items(status, "conditions")
        ),
        deleting="deletionTimestamp" in meta,
        queue=queue_of(meta),
    )


def queue_of(meta: Mapping[str, Any]) -> str:
    """The LocalQueue of Kueue that the label of a RayCluster or RayJob names."""
    return text(mapping(meta, "labels"), QUEUE_LABEL)


def _group(raw: Mapping[str, Any]) -> GroupSpec:
    return GroupSpec(
        name=text(raw, "groupName"),
        replicas=whole(raw, "replicas", 1 if raw.get("replicas") is None else 0),
        min=whole(raw, "minReplicas"),
        max=whole(raw, "maxReplicas", UNBOUNDED),
        hosts=max(1, whole(raw, "numOfHosts", 1)),
        to_delete=tuple(
            str(each) for each in items(mapping(raw, "scaleStrategy"), "workersToDelete", str)
        ),
        suspended=boolean(raw, "suspend"),
        resources=_resources(raw),
    )


def _resources(group: Mapping[str, Any]) -> Resources:
    """Of the Ray container, which is the first; rayStartParams win over its limits, as in Ray."""
    started = mapping(group, "rayStartParams")
    containers = items(mapping(mapping(group, "template"), "spec"), "containers")
    resources = mapping(containers[0], "resources") if containers else {}
    limits = {**mapping(resources, "requests"), **mapping(resources, "limits")}
    return Resources(
        cpus=number(started.get("num-cpus"), quantity(limits.get("cpu"))),
        gpus=number(started.get("num-gpus"), sum(quantity(limits.get(name)) for name in GPUS)),
        memory_bytes=int(quantity(limits.get("memory"))),
    )


def _environment(group: Mapping[str, Any]) -> dict[str, str]:
    containers = items(mapping(mapping(group, "template"), "spec"), "containers")
    return {
        text(each, "name"): text(each, "value")
        for container in containers[:1]
        for each in items(container, "env")
    }
