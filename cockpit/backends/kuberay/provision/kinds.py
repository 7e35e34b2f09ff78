"""The kinds of objects in the manifests: their API paths, and the part that each belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cockpit.backends.kuberay.api.fields import checked, mapping, text

Object = dict[str, Any]
"""A Kubernetes object, as it is in a manifest or in an answer."""


class Kind(Struct, frozen=True):
    api: str
    """`v1`, or group and version."""
    name: str
    plural: str
    part: str = ""
    """What `--without` leaves out; empty for what each cluster needs."""
    namespaced: bool = True
    shared: bool = False
    """Whether clusters in several namespaces use the same object."""

    @property
    def group(self) -> str:
        return self.api.rpartition("/")[0]

    @property
    def api_path(self) -> str:
        return f"/apis/{self.api}" if self.group else f"/api/{self.api}"

    def path(self, namespace: str, name: str = "") -> str:
        """Of the list, or of the object with the name. Raises UsageError for an invalid name."""
        scope = f"/namespaces/{checked('namespace', namespace)}" if self.namespaced else ""
        return f"{self.api_path}{scope}/{self.plural}" + (f"/{name}" if name else "")


_RBAC, _NETWORK = "rbac.authorization.k8s.io/v1", "networking.k8s.io/v1"
_PROMETHEUS = "monitoring.coreos.com/v1"
KINDS = (
    Kind("v1", "Namespace", "namespaces", "namespace", namespaced=False),
    Kind("v1", "ResourceQuota", "resourcequotas", "quota"),
    Kind("v1", "LimitRange", "limitranges", "quota"),
    Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "priorities",
         namespaced=False, shared=True),
    Kind("v1", "ServiceAccount", "serviceaccounts"),
    Kind(_RBAC, "ClusterRole", "clusterroles", "roles", namespaced=False, shared=True),
    Kind(_RBAC, "Role", "roles", "roles"),
    Kind(_RBAC, "RoleBinding", "rolebindings", "roles"),
    Kind(_NETWORK, "NetworkPolicy", "networkpolicies", "network"),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "budgets"),
    Kind("v1", "PersistentVolume", "persistentvolumes", "claim", namespaced=False),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "claim"),
    Kind("v1", "ConfigMap", "configmaps"),
    Kind(_PROMETHEUS, "PodMonitor", "podmonitors"),
    Kind(_PROMETHEUS, "ServiceMonitor", "servicemonitors"),
    Kind(_PROMETHEUS, "PrometheusRule", "prometheusrules"),
    Kind("ray.io/v1", "RayCluster", "rayclusters"),
)  # fmt: skip
"""In the order in which they are created: the pods of the RayCluster need the other objects."""
BY_NAME = {kind.name: kind for kind in KINDS}
PARTS = tuple(dict.fromkeys(kind.part for kind in KINDS if kind.part))
RAY_CLUSTER = BY_NAME["RayCluster"]
CLAIM = BY_NAME["PersistentVolumeClaim"]
NAMESPACE = BY_NAME["Namespace"]


def kind_of(each: Mapping[str, Any]) -> Kind:
    return BY_NAME[each["kind"]]


def name_of(each: Mapping[str, Any]) -> str:
    return text(mapping(each, "metadata"), "name")


def uid_of(each: Mapping[str, Any]) -> str:
    return text(mapping(each, "metadata"), "uid")


def labels_of(each: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(each, "metadata"), "labels")


def described(each: Mapping[str, Any]) -> str:
    """Kind and name, such as `ConfigMap ray-settings`."""
    return f"{text(each, 'kind')} {name_of(each)}"


def path_of(each: Mapping[str, Any]) -> str:
    kind = kind_of(each)
    name = checked(kind.name, name_of(each))
    return kind.path(text(mapping(each, "metadata"), "namespace"), name)


# -- the labels of what cockpit creates

MANAGED_BY = {"app.kubernetes.io/managed-by": "cockpit"}
CLUSTER = "cockpit.ray.io/cluster"
"""The RayCluster that the object was created for."""
IN_NAMESPACE = "cockpit.ray.io/namespace"
"""The namespace of that RayCluster, on an object that has no namespace itself."""
SHARED = "cockpit.ray.io/shared"
"""On an object that clusters in several namespaces use."""


def labels(kind: Kind, namespace: str, cluster: str) -> dict[str, str]:
    """The labels that identify the object for its removal."""
    if kind.shared:
        return MANAGED_BY | {SHARED: "true"}
    where = {} if kind.namespaced else {IN_NAMESPACE: namespace}
    return MANAGED_BY | {CLUSTER: cluster} | where


def selector(of: Mapping[str, str]) -> dict[str, str]:
    """The parameter of a list for these labels."""
    return {"labelSelector": ",".join(f"{name}={value}" for name, value in of.items())}


def is_ours(each: Mapping[str, Any], namespace: str, cluster: str) -> bool:
    """Whether `cockpit up` has created the object for this cluster, or for all clusters."""
    wanted = labels(kind_of(each), namespace, cluster)
    return wanted.items() <= labels_of(each).items()
