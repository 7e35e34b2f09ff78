"""Dependents of a RayCluster besides its pods: services, token, and the autoscaler's roles."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tests.cluster.operator.api import Object
from tests.cluster.operator.raycluster import Cluster, checked_name

_DEFAULT_PORTS = {
    "client": 10001,
    "dashboard": 8265,
    "gcs-server": 6379,
    "metrics": 8080,
    "serve": 8000,
}
_MADE_BY = {
    "app.kubernetes.io/created-by": "kuberay-operator",
    "app.kubernetes.io/name": "kuberay",
}


@dataclass(frozen=True, slots=True)
class Belonging:
    path: str
    """Of the collection that it is posted to."""
    manifest: Object
    event: str
    """The reason of its event; none if empty."""
    said: str
    """The kind, as in the event."""

    @property
    def name(self) -> str:
        name: str = self.manifest["metadata"]["name"]
        return name


def belongings(cluster: Cluster) -> list[Belonging]:
    """In the order in which they are made."""
    found = []
    if cluster.autoscaler is not None:
        found += _rights(cluster)
    if cluster.makes_token:
        found.append(_token(cluster))
    found.append(_service(cluster, head_service(cluster)))
    if any(group.hosts > 1 for group in cluster.groups):
        found.append(_service(cluster, _headless(cluster)))
    return found


def head_service(cluster: Cluster) -> Object:
    labels = {
        **_MADE_BY,
        "ray.io/cluster": cluster.name,
        "ray.io/identifier": f"{cluster.name}-head"[-63:],
        "ray.io/node-type": "head",
    }
    declared = cluster.head_template["spec"]["containers"][0].get("ports") or ()
    ports = {
        port.get("name") or f"{port['containerPort']}-port": port["containerPort"]
        for port in declared
    } or dict(_DEFAULT_PORTS)
    ports.setdefault("metrics", _DEFAULT_PORTS["metrics"])
    spec: Object = {
        "selector": dict(labels),
        "ports": [
            {"name": name, "port": port, "appProtocol": "tcp"}
            for name, port in sorted(ports.items())
        ],
    }
    if cluster.service_type in ("", "ClusterIP"):
        # Workers must find a head that is not ready yet.
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    if cluster.service_type:
        spec["type"] = cluster.service_type
    return {"metadata": _meta(cluster, cluster.head_service, labels), "spec": spec}


def _headless(cluster: Cluster) -> Object:
    """Hosts of one replica find each other by name."""
    return {
        "metadata": _meta(
            cluster, f"{cluster.name}-headless", {"ray.io/headless-worker-svc": cluster.name}
        ),
        "spec": {
            "clusterIP": "None",
            "type": "ClusterIP",
            "selector": {"ray.io/cluster": cluster.name, "ray.io/node-type": "worker"},
            "publishNotReadyAddresses": True,
        },
    }


def _service(cluster: Cluster, manifest: Object) -> Belonging:
    path = f"/api/v1/namespaces/{cluster.namespace}/services"
    return Belonging(path, manifest, "CreatedService", "service")


def _token(cluster: Cluster) -> Belonging:
    manifest = {
        "metadata": _meta(cluster, cluster.token_secret, {"ray.io/cluster": cluster.name}),
        "stringData": {"auth_token": secrets.token_urlsafe(32)},
    }
    return Belonging(f"/api/v1/namespaces/{cluster.namespace}/secrets", manifest, "", "secret")


def _rights(cluster: Cluster) -> list[Belonging]:
    name = checked_name(cluster.name)
    account = checked_name(cluster.head_template["spec"].get("serviceAccountName") or cluster.name)
    labels = {**_MADE_BY, "ray.io/cluster": cluster.name}
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
        {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
    ]
    binding = {
        "metadata": _meta(cluster, name, labels),
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": cluster.namespace}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
    }
    core = f"/api/v1/namespaces/{cluster.namespace}"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{cluster.namespace}"
    return [
        Belonging(
            f"{core}/serviceaccounts",
            {"metadata": _meta(cluster, account, labels)},
            "CreatedServiceAccount",
            "service account",
        ),
        Belonging(
            f"{rbac}/roles",
            {"metadata": _meta(cluster, name, labels), "rules": rules},
            "CreatedRole",
            "role",
        ),
        Belonging(f"{rbac}/rolebindings", binding, "CreatedRoleBinding", "role binding"),
    ]


def _meta(cluster: Cluster, name: str, labels: dict[str, str]) -> Object:
    return {
        "name": name,
        "namespace": cluster.namespace,
        "labels": labels,
        "ownerReferences": [cluster.owner],
    }
