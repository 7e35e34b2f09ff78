"""The environment variables that the operator gives to the containers of a pod."""

from __future__ import annotations

from tests.cluster.operator.api import Object
from tests.cluster.operator.raycluster import Cluster

VERSION = "stand-in"
CRD_LABEL = "ray.io/originated-from-crd"


def add_missing(container: Object, *variables: Object) -> None:
    """Variables that the container does not set itself."""
    own = container.setdefault("env", [])
    names = {variable["name"] for variable in own}
    own.extend(variable for variable in variables if variable["name"] not in names)


def field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def plain(name: str, value: str) -> Object:
    return {"name": name, "value": value}


def token(cluster: Cluster) -> list[Object]:
    """Ray's token authentication; nothing for a cluster without it."""
    if not cluster.token_secret:
        return []
    secret = {"name": cluster.token_secret, "key": "auth_token"}
    return [
        plain("RAY_AUTH_MODE", "token"),
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": secret}},
    ]


def redis(cluster: Cluster) -> list[Object]:
    """For the GCS of a head that keeps its tables in Redis; nothing for another one.

    The Job that deletes the tables with the cluster is not part of this operator.
    """
    if not cluster.redis:
        return []
    found = [
        plain("RAY_external_storage_namespace", cluster.uid),
        plain("RAY_REDIS_ADDRESS", cluster.redis["redisAddress"]),
    ]
    if password := cluster.redis.get("redisPassword"):
        found.append({"name": "REDIS_PASSWORD", **password})
    return found


def place() -> list[Object]:
    return [
        field("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
        field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
    ]


def head_location(cluster: Cluster) -> list[Object]:
    return [plain("FQ_RAY_IP", cluster.head_address), plain("RAY_IP", cluster.head_service)]


def give(container: Object, cluster: Cluster, *, head: bool, command: str, port: str) -> None:
    """All that Ray's container gets, in the real operator's order."""
    own: list[Object] = container.setdefault("env", [])
    if not head:
        own.extend(head_location(cluster))
    own.extend(place())
    own.append(field("RAY_CLOUD_INSTANCE_ID", "metadata.name"))
    own.append(field("RAY_NODE_TYPE_NAME", "metadata.labels['ray.io/group']"))
    own.append(plain("KUBERAY_GEN_RAY_START_CMD", command))
    add_missing(
        container,
        plain("RAY_PORT", port),
        plain("RAY_ADDRESS", f"{'127.0.0.1' if head else cluster.head_address}:{port}"),
        plain("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"),
    )
    if head:
        kind = cluster.labels.get(CRD_LABEL, "RayCluster")
        tags = f"kuberay_version={VERSION};kuberay_crd={kind}"
        own.append(plain("RAY_USAGE_STATS_EXTRA_TAGS", tags))
    add_missing(container, plain("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"))
