"""The objects of an overlay of manifests/kubernetes, for a cluster of a chosen name and size. Pure.

The files are what `kustomize build` makes of the overlays, so that kustomize is not needed here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import yaml
from msgspec import Struct

from cockpit.backends.kuberay.api.fields import checked, is_label, items, mapping, quantity, text
from cockpit.backends.kuberay.provision.kinds import (
    KINDS,
    PARTS,
    Object,
    kind_of,
    labels,
    name_of,
)
from cockpit.backends.kuberay.resources.fault import MARK
from cockpit.backends.kuberay.waiting.labels import queue_labels
from cockpit.config import bundled
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.text import one_line

NAMESPACE, CLUSTER, IMAGE, CLAIM = "ml", "demo", "cockpit-train", "shared"
"""Names in the manifests."""
CLAIM_KIND, SETTINGS = "PersistentVolumeClaim", "ray-settings"
OVERLAYS = ("cpu", "gpu", "recovery", "autoscaling", "monitoring")
SPARES = {"recovery": 1}
"""By overlay: workers in addition to those that the ranks use."""
SMALL = {"cpu": "400m", "memory": "1Gi"}
"""What each pod asks for with `small`, as in the component `small`. The limits stay."""
ACCOUNT_OF_ROLES = "cockpit"
"""The account that the roles are bound to: without the roles it has no use."""
LONGEST_NAME = 63
_IMAGE = re.compile(
    r"(?=.{1,255}(@|$))([a-zA-Z0-9][\w.-]*(:\d{1,5})?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*"
    r"(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
"""`[HOST[:PORT]/]NAME[:TAG][@DIGEST]`, as container runtimes parse it."""
_S3 = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\s?#@]*)?")
_URL = re.compile(r"(https?)://(?:[\w.-]+|\[[0-9a-fA-F:]+\])(?::([0-9]{1,5}))?/?")
_REGION = re.compile(r"[a-z0-9-]{1,40}")
METADATA = ("169.254.169.254/32", "169.254.170.23/32")
"""Where pods with a role get its credentials: of an instance, and of EKS Pod Identity."""
OPEN_PORTS = (443, 6443, 8443, 16443)
"""Those that the network policies let all pods connect to."""
_NFS = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):(/[^\s:]*)")


class Volume(Struct, frozen=True):
    """Where the checkpoints are: the default storage class, or one of these."""

    storage_class: str = ""
    nfs: str = ""
    """`SERVER:/PATH`."""
    host_path: str = ""
    """A folder of the only node."""


class S3(Struct, frozen=True):
    """Checkpoints in a bucket instead of a volume, as in the component `s3`."""

    path: str
    """`s3://BUCKET/PATH`."""
    secret: str = ""
    """A Secret of the namespace with the keys; empty: the pods have a role."""
    region: str = ""
    endpoint: str = ""
    """URL of a server other than AWS, as in the component `s3-endpoint`."""

    @property
    def settings(self) -> dict[str, str]:
        """The variables of the pods."""
        found = {
            "STORAGE_PATH": self.path,
            "AWS_REGION": self.region,
            "AWS_ENDPOINT_URL": self.endpoint,
        }
        return {name: value for name, value in found.items() if value}


class Wanted(Struct, frozen=True):
    """What is created. `size`: worker pods, without spares (None: as in the overlay)."""

    namespace: str = NAMESPACE
    cluster: str = CLUSTER
    overlay: str = "cpu"
    size: int | None = None
    image: str = ""
    """With its tag; empty: that of the manifests."""
    volume: Volume = Volume()
    without: frozenset[str] = frozenset()
    """Names of PARTS."""
    queue: str = ""
    """`NAME` of a LocalQueue of Kueue, or `volcano:NAME`; empty: no queue."""
    small: bool = False
    """Whether all pods fit into 2 CPUs, such as those of a laptop."""
    s3: S3 | None = None

    @property
    def storage_path(self) -> str:
        """Where the pods can keep checkpoints."""
        return self.s3.path if self.s3 is not None else f"/{CLAIM}/checkpoints"


def read(overlay: str) -> list[Object]:
    """The objects of the overlay as they are in its file."""
    path = bundled.manifests() / "kubernetes" / "rendered" / f"{overlay}.yaml"
    if not path.is_file():
        raise CockpitError(
            f"The manifests of the overlay {one_line(overlay)} are missing.",
            f"There is no {path}.",
            "Install cockpit again.",
        )
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(path.read_text(), loader) if each]


def objects(wanted: Wanted) -> tuple[Object, ...]:
    """Everything to create, in this order. Raises UsageError for what Kubernetes would not take."""
    _check(wanted)
    found = read(wanted.overlay)
    found = _with_s3(wanted, found) if wanted.s3 else found + _apply_volume(wanted, found)
    made = [_named(each, wanted) for each in found if not _is_left_out(each, wanted.without)]
    cluster = next(each for each in made if each["kind"] == "RayCluster")
    _set_size(cluster, wanted)
    cluster["metadata"]["labels"] |= queue_labels(wanted.queue)
    for template in templates(cluster):
        for container in items(mapping(template, "spec"), "containers"):
            if wanted.small:
                container["resources"]["requests"] |= SMALL
            if wanted.image and text(container, "image").partition(":")[0] == IMAGE:
                container["image"] = wanted.image
        if "priorities" in wanted.without:
            mapping(template, "spec").pop("priorityClassName", None)
    for each in made:
        if each["kind"] == "ResourceQuota":
            _raise_quota(each, largest(cluster))
    order = {kind.name: number for number, kind in enumerate(KINDS)}
    return tuple(sorted(made, key=lambda each: order[each["kind"]]))


def templates(cluster: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The pod templates: the head's, and that of each worker group."""
    spec = mapping(cluster, "spec")
    yield mapping(mapping(spec, "headGroupSpec"), "template")
    for group in items(spec, "workerGroupSpecs"):
        yield mapping(group, "template")


def needed(cluster: Mapping[str, Any]) -> dict[str, float]:
    """What the pods of the cluster ask for, by the names that a ResourceQuota has."""
    return _sum(cluster, "replicas")


def largest(cluster: Mapping[str, Any]) -> dict[str, float]:
    """The same with all groups at their maximum."""
    return _sum(cluster, "maxReplicas")


def group_sizes(cluster: Mapping[str, Any]) -> dict[str, int]:
    """The number of pods of each worker group."""
    groups = items(mapping(cluster, "spec"), "workerGroupSpecs")
    return {text(group, "groupName"): group["replicas"] for group in groups}


def _sum(cluster: Mapping[str, Any], count: str) -> dict[str, float]:
    spec = mapping(cluster, "spec")
    counts = [1, *(group[count] for group in items(spec, "workerGroupSpecs"))]
    used: dict[str, float] = {"pods": sum(counts)}

    def add(number: int, resources: Mapping[str, Any]) -> None:
        for kind in ("requests", "limits"):
            for name, amount in mapping(resources, kind).items():
                key = f"{kind}.{name}"
                used[key] = used.get(key, 0.0) + number * quantity(amount)

    for number, template in zip(counts, templates(cluster), strict=True):
        for container in items(mapping(template, "spec"), "containers"):
            add(number, mapping(container, "resources"))
    if spec.get("enableInTreeAutoscaling"):  # its container is added to the pod of the head
        add(1, mapping(mapping(spec, "autoscalerOptions"), "resources"))
    return used


def _check(wanted: Wanted) -> None:
    for kind, name in (("RayCluster", wanted.cluster), ("namespace", wanted.namespace)):
        # A label with the name is on each object, and KubeRay makes a Service of the cluster's.
        if not is_label(checked(kind, name)):
            raise UsageError(
                f"A {kind} cannot be named {one_line(name)!r}.",
                f"It has at most {LONGEST_NAME} lower-case letters, digits and dashes.",
            )
    if wanted.size is not None and wanted.size < 1:
        raise UsageError("--size is the number of worker pods: at least 1.")
    if wanted.image and not _IMAGE.fullmatch(wanted.image):
        raise UsageError(
            f"{one_line(wanted.image)!r} is not the name of an image.",
            todo="For example: --image registry.example.com/cockpit-train:0.1.0",
        )
    if unknown := wanted.without - set(PARTS):
        raise UsageError(
            f"There is no part {one_line(min(unknown))!r}.", f"Parts: {', '.join(PARTS)}."
        )


def _is_left_out(each: Object, without: Collection[str]) -> bool:
    kind = kind_of(each)
    if kind.name == "ServiceAccount" and name_of(each) == ACCOUNT_OF_ROLES:
        return "roles" in without
    return kind.part in without


def _named(each: Object, wanted: Wanted) -> Object:
    """The object in the wanted namespace, for the wanted cluster, with our labels."""
    kind = kind_of(each)
    made: Object = _renamed(each, wanted)
    meta = made["metadata"]
    if kind.namespaced:
        meta["namespace"] = wanted.namespace
    if kind.name == "Namespace":
        meta["name"] = wanted.namespace
    if kind.name == "RayCluster":
        meta["name"] = wanted.cluster
    for subject in items(made, "subjects"):
        subject["namespace"] = wanted.namespace
    meta["labels"] = {**meta.get("labels", {}), **labels(kind, wanted.namespace, wanted.cluster)}
    return made


def _renamed(value: Any, wanted: Wanted) -> Any:
    """A copy with the cluster's name in each selector, and in the names of its Secret."""
    if isinstance(value, Mapping):
        return {
            key: wanted.cluster
            if key == "ray.io/cluster"
            else [wanted.cluster if name == CLUSTER else name for name in item]
            if key == "resourceNames"
            else _renamed(item, wanted)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_renamed(item, wanted) for item in value]
    return value


def _set_size(cluster: Object, wanted: Wanted) -> None:
    """Of the group that has pods; of an autoscaled cluster, the maximum of its group."""
    if wanted.size is None:
        return
    spec = mapping(cluster, "spec")
    groups = items(spec, "workerGroupSpecs")
    if spec.get("enableInTreeAutoscaling"):
        groups[0]["maxReplicas"] = wanted.size
        return
    group = next((each for each in groups if each["replicas"]), groups[0])
    group["replicas"] = wanted.size + SPARES.get(wanted.overlay, 0)
    group["maxReplicas"] = max(group["maxReplicas"], group["replicas"])


def _raise_quota(quota: Object, need: Mapping[str, float]) -> None:
    """So that the largest size of the cluster fits."""
    hard = quota["spec"]["hard"]
    for name, amount in hard.items():
        if need.get(name, 0.0) > quantity(amount):
            is_memory = name.endswith("memory")
            hard[name] = f"{-(-need[name] // 2**30):.0f}Gi" if is_memory else f"{need[name]:g}"


def _apply_volume(wanted: Wanted, found: list[Object]) -> list[Object]:
    """Set the volume of the claim. Returns the objects that are added for it."""
    volume = wanted.volume
    given = [part for part in (volume.storage_class, volume.nfs, volume.host_path) if part]
    if len(given) > 1:
        raise UsageError("Keep one of --storage-class, --nfs and --host-path.")
    if not given or "claim" in wanted.without:
        return []
    claim = next(each for each in found if (each["kind"], name_of(each)) == (CLAIM_KIND, CLAIM))[
        "spec"
    ]
    if volume.storage_class:
        claim["storageClassName"] = checked("storage class", volume.storage_class)
        return []
    kind = "nfs" if volume.nfs else "hostpath"
    name = f"{wanted.namespace}-{CLAIM}-{kind}"
    claim |= {"storageClassName": "", "volumeName": name}
    spec: dict[str, Any] = {
        "capacity": dict(claim["resources"]["requests"]),
        "accessModes": list(claim["accessModes"]),
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if volume.nfs:
        match = _NFS.fullmatch(volume.nfs)
        if match is None:
            raise UsageError(
                f"--nfs {one_line(volume.nfs)!r} is not SERVER:/PATH.",
                todo="For example: --nfs nfs.example.com:/exports/ml",
            )
        spec |= {"mountOptions": ["nfsvers=4.1"], "nfs": {"server": match[1], "path": match[2]}}
    else:
        if not volume.host_path.startswith("/") or ".." in volume.host_path.split("/"):
            raise UsageError(
                f"--host-path {one_line(volume.host_path)!r} is not an absolute path.",
                todo="For example: --host-path /var/lib/cockpit/shared",
            )
        spec["hostPath"] = {"path": volume.host_path, "type": "Directory"}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    ]


def _with_s3(wanted: Wanted, found: list[Object]) -> list[Object]:
    """The objects without the claim and its mounts, and with the address and keys of the bucket.

    Raises UsageError if Kubernetes or S3 would not take it.
    """
    assert wanted.s3 is not None
    volume, s3 = wanted.volume, wanted.s3
    if volume.storage_class or volume.nfs or volume.host_path:
        raise UsageError("--s3 needs no volume: leave out --storage-class, --nfs and --host-path.")
    port = _checked_port(s3)
    kept = [each for each in found if (each["kind"], name_of(each)) != (CLAIM_KIND, CLAIM)]
    for each in kept:
        if (each["kind"], name_of(each)) == ("ConfigMap", SETTINGS):
            each["data"] |= s3.settings
        if each["kind"] == "RayCluster":
            for template in templates(each):
                spec = mapping(template, "spec")
                _remove(spec["volumes"], CLAIM)
                for container in items(spec, "containers"):
                    _remove(container["volumeMounts"], CLAIM)
                    if s3.secret:
                        container["envFrom"].append({"secretRef": {"name": s3.secret}})
    if port not in OPEN_PORTS:
        kept.append(_egress("ray-to-s3", port))
    if not s3.secret:
        kept.append(_egress("ray-to-role", 80, METADATA))
    return kept


def _checked_port(s3: S3) -> int:
    """The port of the server."""
    if not _S3.fullmatch(s3.path):
        raise UsageError(
            f"--s3 {one_line(s3.path)!r} is not the address of a bucket.",
            "Keys and options are not part of it: use --s3-secret, --s3-region and --s3-endpoint.",
            "For example: --s3 s3://BUCKET/runs --s3-secret s3",
        )
    if s3.region and not _REGION.fullmatch(s3.region):
        raise UsageError(f"--s3-region {one_line(s3.region)!r} is not the name of a region.")
    if s3.secret:
        checked("Secret", s3.secret)
    if not s3.endpoint:
        return 443
    url = _URL.fullmatch(s3.endpoint)
    if url is None or not 0 < int(url[2] or 443) < 1 << 16:
        raise UsageError(
            f"--s3-endpoint {one_line(s3.endpoint)!r} is not the URL of a server.",
            todo="For example: --s3-endpoint http://minio.storage:9000",
        )
    return int(url[2] or (443 if url[1] == "https" else 80))


def _remove(named: list[Object], name: str) -> None:
    """Remove the volume or mount of this name."""
    named[:] = [each for each in named if each["name"] != name]


def _egress(name: str, port: int, cidrs: Collection[str] = ()) -> Object:
    """A policy that lets the Ray pods connect to the port of these addresses, or of any."""
    rule: Object = {"ports": [{"protocol": "TCP", "port": port}]}
    if cidrs:
        rule["to"] = [{"ipBlock": {"cidr": cidr}} for cidr in cidrs]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "podSelector": {
                "matchLabels": {"ray.io/is-ray-node": "yes"},
                "matchExpressions": [{"key": MARK, "operator": "DoesNotExist"}],
            },
            "policyTypes": ["Egress"],
            "egress": [rule],
        },
    }
