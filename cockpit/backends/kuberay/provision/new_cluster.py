"""What Kubernetes has for the cluster that a RayJob would create. Creates nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from cockpit.backends.kuberay.api.client import KubeClient, KubeError
from cockpit.backends.kuberay.api.fields import checked, items, mapping, quantity, text
from cockpit.backends.kuberay.provision import node_room
from cockpit.backends.kuberay.provision.kinds import BY_NAME
from cockpit.backends.kuberay.resources import rayjob
from cockpit.backends.kuberay.resources.raycluster import ray_cluster
from cockpit.backends.kuberay.waiting import kueue, volcano, watch
from cockpit.backends.kuberay.waiting.labels import queue_labels
from cockpit.backends.protocol import RayJobSpec
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.model.new_cluster import NewCluster, PodsOf, QuotaLeft
from cockpit.model.text import one_line
from cockpit.model.waiting import ClaimState, QueueEntry, QueueState

T = TypeVar("T")
HEAD = ""
RESOURCES = {"ConfigMap": "configmaps", "Secret": "secrets", "ServiceAccount": "serviceaccounts"}
"""The kinds that a pod refers to in its namespace, as the API's paths name them."""


async def survey(
    client: KubeClient, ref: ClusterRef, raw: Any, spec: RayJobSpec, *, may_try: bool
) -> NewCluster:
    """`raw`: the RayCluster that is the pattern. `may_try`: let the API server check the RayJob,
    as a dry run. Raises UsageError for what Kubernetes or KubeRay would not take.
    """
    body = rayjob.resource(ref, raw, spec)
    cluster = {"metadata": {}, "spec": body["spec"]["rayClusterSpec"]}
    groups = _pod_specs(cluster)
    pods = _pods(cluster, groups)
    need = _needed(pods, groups)
    unknown: list[str] = []
    unread: list[str] = []

    async def known(what: str, request: Coroutine[Any, Any, T], otherwise: T) -> T:
        try:
            return await request
        except CockpitError as error:
            unknown.append(one_line(f"{what}: {_reason(error)}", 300))
            return otherwise

    nodes, used, (accepted, refused) = await asyncio.gather(
        known("nodes", client.objects("/api/v1/nodes"), None),
        known("pods of all namespaces", node_room.used(client), None),
        known("RayJob", _tried(client, ref, body, may_try=may_try), (False, "")),
    )
    quotas, claims, missing, queue = await asyncio.gather(
        known("quotas", _quotas(client, ref, need), ()),
        known("claims", _claims(client, ref, groups), ()),
        known("objects that the pods use", _missing(client, ref, groups, unread), ()),
        known("queue", _queue(client, ref, spec.queue, need), None),
    )
    return NewCluster(
        pods=pods,
        nodes=None if nodes is None else tuple(node_room.rooms(nodes, used or {}, groups)),
        is_free=used is not None,
        quotas=quotas,
        claims=claims,
        missing=missing,
        unread=tuple(unread),
        queue=queue,
        refused=refused,
        is_accepted=accepted,
        unknown=tuple(unknown),
    )


def _pod_specs(cluster: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """By group, the spec of its pods."""
    spec = mapping(cluster, "spec")
    parts = {HEAD: mapping(spec, "headGroupSpec")}
    parts |= {text(group, "groupName"): group for group in items(spec, "workerGroupSpecs")}
    return {name: mapping(mapping(part, "template"), "spec") for name, part in parts.items()}


def _pods(
    cluster: Mapping[str, Any], groups: Mapping[str, Mapping[str, Any]]
) -> tuple[PodsOf, ...]:
    parsed = ray_cluster(cluster)
    offered = {group.name: group for group in parsed.groups}
    made = []
    for name, pod in groups.items():
        asked, group = node_room.requests(pod), offered.get(name)
        made.append(
            PodsOf(
                name,
                1 if group is None else group.wanted * group.hosts,
                asked.get("cpu", 0.0),
                asked.get("memory", 0.0),
                node_room.gpus(asked),
                0.0 if group is None else group.resources.cpus,
                0.0 if group is None else group.resources.gpus,
                text(next(iter(items(pod, "containers")), {}), "image", 300),
                group.max * group.hosts if group is not None and parsed.autoscaled else 0,
            )
        )
    return tuple(made)


def _needed(pods: Iterable[PodsOf], groups: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """What all pods need, by the names that a ResourceQuota has."""
    total: dict[str, float] = {}

    def add(name: str, amount: float) -> None:
        total[name] = total.get(name, 0.0) + amount

    for of in pods:
        add("pods", of.count)
        for name, amount in node_room.requests(groups[of.group]).items():
            add(f"requests.{name}", of.count * amount)
        for container in items(groups[of.group], "containers"):
            for name, limit in mapping(mapping(container, "resources"), "limits").items():
                add(f"limits.{name}", of.count * quantity(limit))
    return total


async def _quotas(
    client: KubeClient, ref: ClusterRef, need: Mapping[str, float]
) -> tuple[QuotaLeft, ...]:
    """Those without a scope: whether a pod is in one depends on more than its resources."""
    listed = await client.get(BY_NAME["ResourceQuota"].path(ref.namespace))
    found = []
    for raw in items(listed, "items"):
        spec, status = mapping(raw, "spec"), mapping(raw, "status")
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        hard, used = mapping(status, "hard") or mapping(spec, "hard"), mapping(status, "used")
        for resource, most in hard.items():
            # `cpu` and `memory` are older names of the requests.
            short = str(resource).removeprefix("count/")
            asked = need.get(short, need.get(f"requests.{short}", 0.0))
            if asked:
                name = one_line(text(mapping(raw, "metadata"), "name"))
                left = max(0.0, quantity(most) - quantity(used.get(resource)))
                found.append(QuotaLeft(name, one_line(str(resource)), asked, left))
    return tuple(found)


async def _claims(
    client: KubeClient, ref: ClusterRef, groups: Mapping[str, Mapping[str, Any]]
) -> tuple[ClaimState, ...]:
    names = {
        text(mapping(volume, "persistentVolumeClaim"), "claimName")
        for pod in groups.values()
        for volume in items(pod, "volumes")
    } - {""}
    asked = (watch.claim(client, ref.namespace, name) for name in sorted(names))
    return tuple(await asyncio.gather(*asked))


async def _missing(
    client: KubeClient,
    ref: ClusterRef,
    groups: Mapping[str, Mapping[str, Any]],
    unread: list[str],
) -> tuple[str, ...]:
    """Of the objects that the pods refer to, those that do not exist. Adds to `unread`."""
    wanted = sorted({each for pod in groups.values() for each in _references(pod)})

    async def is_missing(kind: str, name: str) -> bool:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        if kind != "PriorityClass":
            path = f"/api/v1/namespaces/{ref.namespace}/{RESOURCES[kind]}"
        try:
            return await client.find(f"{path}/{checked(kind, name)}") is None
        except NotAllowedError:
            unread.append(f"{kind} {one_line(name)}")
            return False

    lacking = await asyncio.gather(*(is_missing(*each) for each in wanted))
    return tuple(
        f"{kind} {one_line(name)}"
        for (kind, name), lacks in zip(wanted, lacking, strict=True)
        if lacks
    )


def _references(pod: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Kind and name of each object that a pod cannot start without."""
    found = [("ServiceAccount", text(pod, "serviceAccountName") or "default")]
    found.append(("PriorityClass", text(pod, "priorityClassName")))
    found += [("Secret", text(each, "name")) for each in items(pod, "imagePullSecrets")]
    for volume in items(pod, "volumes"):
        for key, kind, name in (
            ("secret", "Secret", "secretName"),
            ("configMap", "ConfigMap", "name"),
        ):
            source = mapping(volume, key)
            # The ConfigMap with the job's code is created with the RayJob.
            if not source.get("optional") and text(volume, "name") != rayjob.PACKAGE_VOLUME:
                found.append((kind, text(source, name)))
    for container in (*items(pod, "initContainers"), *items(pod, "containers")):
        sources = [
            *items(container, "envFrom"),
            *(mapping(each, "valueFrom") for each in items(container, "env")),
        ]
        for source in sources:
            for key, kind in (
                ("secretRef", "Secret"),
                ("secretKeyRef", "Secret"),
                ("configMapRef", "ConfigMap"),
                ("configMapKeyRef", "ConfigMap"),
            ):
                of = mapping(source, key)
                if not of.get("optional"):
                    found.append((kind, text(of, "name")))
    return ((kind, name) for kind, name in found if name)


async def _queue(
    client: KubeClient, ref: ClusterRef, queue: str, need: Mapping[str, float]
) -> QueueEntry | None:
    """The workload of the cluster as it would be in its queue, behind those that are in it."""
    if not queue:
        return None
    labels = queue_labels(queue)
    manager = "volcano" if volcano.QUEUE_LABEL in labels else "kueue"
    name = labels.get(volcano.QUEUE_LABEL) or labels[kueue.QUEUE_LABEL]
    group = volcano.GROUP if manager == "volcano" else kueue.GROUP
    version = await watch.version_of(client, group)
    entry = QueueEntry(manager, "new", "RayJob", "new", name, state=QueueState.PENDING)
    if not version:
        return replace(entry, queue_problem=f"{manager.capitalize()} is not installed")
    asked = {
        resource.removeprefix("requests."): amount
        for resource, amount in need.items()
        if not resource.startswith("limits.")
    }
    if manager == "volcano":
        queues = await client.objects(f"/apis/{group}/{version}/queues")
        by_name = {each.name: each for each in map(volcano.queue, queues)}
        (found,) = volcano.entries([volcano.PodGroup(entry, asked)], by_name)
        return found
    path = f"/apis/{group}/{version}"
    local, clusters = await asyncio.gather(
        client.objects(f"{path}/namespaces/{ref.namespace}/localqueues"),
        client.objects(f"{path}/clusterqueues"),
    )
    cluster_queues = {each.name: each for each in map(kueue.cluster_queue, clusters)}
    (found,) = kueue.entries(
        [kueue.Workload(entry, asked)],
        {each.name: each for each in map(kueue.local_queue, local)},
        cluster_queues,
    )
    of = cluster_queues.get(found.cluster_queue)
    return replace(found, waiting=1 + ((of.pending if of is not None else None) or 0))


async def _tried(
    client: KubeClient, ref: ClusterRef, body: Mapping[str, Any], *, may_try: bool
) -> tuple[bool, str]:
    """Whether the API server accepts the RayJob, else why not: by the schema of its KubeRay."""
    if not may_try:
        return False, ""
    path = f"{rayjob.path(ref)}?dryRun=All&fieldValidation=Strict"
    try:
        await client.create(path, body)
    except KubeError as error:
        if error.status == 404:
            return False, "its API server has no RayJobs: KubeRay's definitions are not installed"
        return False, one_line(_reason(error), 300)
    except NotAllowedError as error:
        return False, one_line(_reason(error), 300)
    return True, ""


def _reason(error: CockpitError) -> str:
    """The message of the API server, without its HTTP status."""
    return error.what if isinstance(error, KubeError) else error.why or error.what
