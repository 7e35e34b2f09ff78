"""A RayCluster as the operator reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.cluster.operator.api import Object
from tests.cluster.operator.mirror import Key

GROUP = "/apis/ray.io/v1"
HEAD_GROUP = "headgroup"
NO_LIMIT = 2**31 - 1
FIRST_WITH_TOKEN = (2, 52)


@dataclass(frozen=True, slots=True)
class Group:
    """One of the cluster's worker groups."""

    name: str
    replicas: int
    min_replicas: int
    max_replicas: int
    hosts: int
    suspended: bool
    workers_to_delete: tuple[str, ...]
    start_params: Mapping[str, str]
    template: Object

    @property
    def desired_replicas(self) -> int:
        """The requested number within the limits. A replica has `hosts` pods."""
        if self.suspended:
            return 0
        return min(max(self.replicas, self.min_replicas), self.max_replicas)

    @property
    def desired_pods(self) -> int:
        return self.desired_replicas * self.hosts


@dataclass(frozen=True, slots=True)
class Autoscaler:
    v2: bool
    options: Object


@dataclass(frozen=True, slots=True)
class Cluster:
    key: Key
    uid: str
    generation: int
    version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    ray_version: str
    suspend: bool | None
    """None is not False: a suspended cluster whose field is removed stays suspended."""
    autoscaler: Autoscaler | None
    token_secret: str
    """The path of the token of Ray's token authentication; empty without it."""
    makes_token: bool
    redis: Object
    """`gcsFaultToleranceOptions`; empty for a GCS with its tables in memory."""
    head_params: Mapping[str, str]
    head_template: Object
    service_type: str
    groups: tuple[Group, ...]
    status: Object
    going: bool

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def head_service(self) -> str:
        return f"{self.name}-head-svc"

    @property
    def head_address(self) -> str:
        return f"{self.head_service}.{self.namespace}.svc.cluster.local"

    @property
    def desired_workers(self) -> int:
        return sum(group.desired_pods for group in self.groups)

    @property
    def owner(self) -> Object:
        """The owner reference of all that is made for it."""
        return owner("RayCluster", self.name, self.uid)

    @property
    def path(self) -> str:
        return f"{GROUP}/namespaces/{self.namespace}/rayclusters/{self.name}"


def owner(kind: str, name: str, uid: str) -> Object:
    return {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def parse(item: Object) -> Cluster:
    """ValueError with a sentence where the real operator would refuse the spec."""
    meta, spec = item["metadata"], item["spec"]
    head = spec["headGroupSpec"]
    auth = spec.get("authOptions") or {}
    token = auth.get("mode") == "token"
    if token and _version(spec.get("rayVersion", "")) < FIRST_WITH_TOKEN:
        raise ValueError(
            "authOptions.mode is 'token' but minimum Ray version is 2.52.0, "
            f"got {spec.get('rayVersion', 'none')}"
        )
    cluster = Cluster(
        key=Key.of(item),
        uid=meta["uid"],
        generation=meta.get("generation", 1),
        version=meta["resourceVersion"],
        labels=meta.get("labels", {}),
        annotations=meta.get("annotations", {}),
        ray_version=spec.get("rayVersion", ""),
        suspend=spec.get("suspend"),
        autoscaler=_autoscaler(spec),
        token_secret=(auth.get("secretName") or checked_name(meta["name"])) if token else "",
        makes_token=token and not auth.get("secretName"),
        redis=spec.get("gcsFaultToleranceOptions") or {},
        head_params=head.get("rayStartParams") or {},
        head_template=head["template"],
        service_type=head.get("serviceType", ""),
        groups=tuple(_group(group) for group in spec.get("workerGroupSpecs") or ()),
        status=item.get("status") or {},
        going="deletionTimestamp" in meta,
    )
    _check(cluster)
    return cluster


def checked_name(name: str) -> str:
    """The end of a name that is too long for what is made of it."""
    return name if len(name) <= 50 else "r" + name[-49:]


def supports_health_route(ray_version: str) -> bool:
    """Since 2.53 one route of the agent reports a node's health."""
    return _version(ray_version) >= (2, 53)


def _group(spec: Mapping[str, Any]) -> Group:
    least = spec.get("minReplicas") or 0
    return Group(
        name=spec["groupName"],
        replicas=spec.get("replicas", least),
        min_replicas=least,
        max_replicas=spec.get("maxReplicas", NO_LIMIT),
        hosts=max(spec.get("numOfHosts") or 1, 1),
        suspended=spec.get("suspend") or False,
        workers_to_delete=tuple((spec.get("scaleStrategy") or {}).get("workersToDelete") or ()),
        start_params=spec.get("rayStartParams") or {},
        template=spec["template"],
    )


def _autoscaler(spec: Mapping[str, Any]) -> Autoscaler | None:
    if not spec.get("enableInTreeAutoscaling"):
        return None
    options = spec.get("autoscalerOptions") or {}
    return Autoscaler(options.get("version") == "v2", options)


def _check(cluster: Cluster) -> None:
    if not cluster.head_template.get("spec", {}).get("containers"):
        raise ValueError("headGroupSpec should have at least one container")
    for group in cluster.groups:
        if not group.template.get("spec", {}).get("containers"):
            raise ValueError("workerGroupSpec should have at least one container")
        if group.min_replicas > group.max_replicas:
            raise ValueError(
                f"worker group {group.name} has minReplicas {group.min_replicas} "
                f"greater than maxReplicas {group.max_replicas}"
            )
    if cluster.autoscaler and cluster.autoscaler.v2:
        templates = [cluster.head_template, *(group.template for group in cluster.groups)]
        for template in templates:
            if template["spec"].get("restartPolicy", "Never") != "Never":
                raise ValueError("restartPolicy should be Never or unset when using autoscaler V2")


def _version(text: str) -> tuple[int, int]:
    parts = text.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return 0, 0
