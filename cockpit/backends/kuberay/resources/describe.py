"""Objects for a person to read: as YAML, and described with their latest events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.error_message import not_kubernetes
from cockpit.backends.kuberay.api.fields import (
    UNUSABLE,
    checked,
    items,
    mapping,
    seconds,
    text,
    usable,
    whole,
)
from cockpit.backends.kuberay.resources import objects
from cockpit.backends.kuberay.resources.clusters import where_else
from cockpit.backends.kuberay.resources.health import health, health_alone
from cockpit.backends.kuberay.resources.pod_reason import ended
from cockpit.backends.kuberay.resources.raycluster import ray_cluster
from cockpit.backends.kuberay.resources.safe_yaml import as_yaml
from cockpit.model.clock import server_time
from cockpit.model.cluster import ClusterRef, Pod
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from cockpit.model.text import one_line

EVENTS = 20
"""The number of latest events at the end."""
_KINDS = {
    "cluster": ("RayCluster", "/apis/ray.io/v1", "rayclusters"),
    "group": ("RayCluster", "/apis/ray.io/v1", "rayclusters"),
    "pod": ("Pod", "/api/v1", "pods"),
    "node": ("Node", "/api/v1", "nodes"),
    "rayjob": ("RayJob", "/apis/ray.io/v1", "rayjobs"),
}
Row = tuple[str, str]
"""A label and its value; rows without a label continue the one above."""


async def manifest(client: KubeClient, ref: ClusterRef, kind: str, name: str) -> str:
    raw = await _get(client, ref, kind, name)
    return as_yaml(_group(raw, ref, name) if kind == "group" else raw)


async def describe(client: KubeClient, ref: ClusterRef, kind: str, name: str) -> str:
    raw = await _get(client, ref, kind, name)
    if kind == "group":
        _group(raw, ref, name)
    pods = await _pods(client, ref) if kind in ("group", "cluster") else None
    try:
        rows = _rows(kind, raw, name, pods)
    except UNUSABLE as error:
        raise not_kubernetes(f"{kind} {name}", f"{type(error).__name__}: {error}") from error
    about = ref.name if kind == "group" else name
    events = await _events(client, ref, kind, about)
    if kind == "rayjob" and (cluster := text(mapping(raw, "status"), "rayClusterName")):
        # Why a RayJob does not start is often reported on its cluster: a quota, an image.
        events += f"\nRayCluster {cluster}" + await _events(
            client, ref, "cluster", checked("RayCluster", cluster)
        )
    return _lines(rows) + events


def _rows(kind: str, raw: Any, name: str, pods: list[Pod] | None) -> list[Row]:
    match kind:
        case "pod":
            return _pod(raw)
        case "node":
            return _node(raw)
        case "rayjob":
            return _rayjob(raw)
        case "group":
            return _of_group(raw, name, pods or ())
        case _:
            return _cluster(raw, pods)


async def _get(client: KubeClient, ref: ClusterRef, kind: str, name: str) -> Any:
    if kind not in _KINDS:
        raise UsageError(
            f"There is no kind of object {one_line(kind)!r}.", f"Kinds: {', '.join(_KINDS)}."
        )
    label, api, plural = _KINDS[kind]
    scope = "" if kind == "node" else f"/namespaces/{ref.namespace}"
    wanted = checked(label, ref.name if kind == "group" else name)
    if (found := await client.find(f"{api}{scope}/{plural}/{wanted}")) is not None:
        return found
    where = f" in namespace {ref.namespace}" if scope else ""
    if label == "RayCluster" and wanted == ref.name:
        raise UnreachableError(
            f"There is no RayCluster {one_line(wanted)}{where}.",
            todo=await where_else(client, wanted),
        )
    raise UsageError(f"There is no {label} {one_line(wanted)!r}{where}.")


def _group(raw: Any, ref: ClusterRef, name: str) -> Any:
    groups = items(mapping(raw, "spec"), "workerGroupSpecs")
    for group in groups:
        if text(group, "groupName") == name:
            return group
    names = ", ".join(text(group, "groupName") for group in groups)
    raise UsageError(
        f"There is no worker group {one_line(name)!r} in RayCluster {ref.name}.",
        f"Groups: {names}." if names else "It has no worker groups.",
    )


async def _pods(client: KubeClient, ref: ClusterRef) -> list[Pod] | None:
    """None where they may not be listed."""
    found: list[Pod] = []
    labels = {"labelSelector": f"{objects.CLUSTER_LABEL}={ref.name}"}
    try:
        async for page in client.pages(f"/api/v1/namespaces/{ref.namespace}/pods", labels):
            found += usable(objects.pod, page.items)
    except NotAllowedError:
        return None
    return found


async def _events(client: KubeClient, ref: ClusterRef, kind: str, name: str) -> str:
    # The kubelet writes a node's events with the node's name as its uid, and into `default`.
    namespace = "default" if kind == "node" else ref.namespace
    selector = f"involvedObject.kind={_KINDS[kind][0]},involvedObject.name={name}"
    try:
        answer = await client.get(
            f"/api/v1/namespaces/{namespace}/events", {"fieldSelector": selector}
        )
    except CockpitError as error:
        return f"\nEvents: {one_line(error.why or error.what)}\n"
    notices = sorted(usable(partial(objects.notice, source=""), items(answer, "items")), key=_at)
    if not notices:
        return "\nEvents: none\n"
    now = server_time()
    lines = [
        f"  {_age(now - notice.at_s):>6}  {'!' if notice.warning else ' '} {notice.reason:<22}"
        f" {notice.message}"
        for notice in notices[-EVENTS:]
    ]
    return "\nEvents (the latest at the end):\n" + "\n".join(lines) + "\n"


def _at(notice: Any) -> float:
    return float(notice.at_s)


def _cluster(raw: Any, pods: list[Pod] | None) -> list[Row]:
    cluster = ray_cluster(raw)
    state, why = health_alone(cluster) if pods is None else health(cluster, pods)
    rows = [*_top(raw), ("Health", f"{state.value}{': ' + why if why else ''}")]
    rows += [("Ray", cluster.ray_version or "unknown")]
    rows += [("Autoscaler", "on" if cluster.autoscaled else "off")]
    rows += [("Token", f"Secret {cluster.token_secret}" if cluster.token_secret else "none")]
    rows += [("Head service", cluster.head_service)]
    for group in objects.worker_groups(cluster, pods or ()):
        hosts = f", {group.hosts} hosts a replica" if group.hosts > 1 else ""
        ready = "" if pods is None else f"{group.ready} ready of "
        note = f"  ({group.note})" if group.note else ""
        counts = f"{ready}{group.desired} (min {group.min}, max {group.max}{hosts}){note}"
        rows.append((f"Group {group.name}", counts))
    return rows + _conditions(raw)


def _of_group(raw: Any, name: str, pods: Iterable[Pod]) -> list[Row]:
    cluster = ray_cluster(raw)
    mine = [pod for pod in objects.pods_in_order(pods) if pod.group == name]
    (group,) = (g for g in objects.worker_groups(cluster, mine) if g.name == name)
    resources = group.resources
    rows = [("Group", name), ("Cluster", f"{cluster.namespace}/{cluster.name}")]
    rows += [("Pods", f"{group.ready} ready of {group.desired}, min {group.min}, max {group.max}")]
    rows += [("Hosts", f"{group.hosts} a replica")] if group.hosts > 1 else []
    rows += [("Note", group.note)] if group.note else []
    memory = f", {resources.memory_bytes / 2**30:.3g} GiB" if resources.memory_bytes else ""
    rows += [("Each offers", f"{resources.cpus:g} CPUs, {resources.gpus:g} GPUs{memory}")]
    rows += [("" if n else "Now", f"{pod.name}  {_state(pod)}") for n, pod in enumerate(mine)]
    return rows


def _pod(raw: Any) -> list[Row]:
    pod = objects.pod(raw)
    rows = [*_top(raw), ("Group", pod.group), ("State", _state(pod))]
    rows += [("Node", pod.host or "none yet"), ("Address", pod.ip or "none yet")]
    rows += [("Replica", pod.replica)] if pod.replica else []
    status = mapping(raw, "status")
    for each in items(mapping(raw, "spec"), "initContainers"):
        rows += _container("Init container", each, items(status, "initContainerStatuses"))
    for each in items(mapping(raw, "spec"), "containers"):
        rows += _container("Container", each, items(status, "containerStatuses"))
    return rows + _conditions(raw)


def _container(
    label: str, spec: Mapping[str, Any], statuses: Iterable[Mapping[str, Any]]
) -> list[Row]:
    name = text(spec, "name")
    status = next((each for each in statuses if text(each, "name") == name), {})
    rows = [(f"{label} {name}", text(spec, "image"))]
    rows.append(("", _container_state(mapping(status, "state"))))
    if last := mapping(mapping(status, "lastState"), "terminated"):
        rows.append(("", f"before that: {ended(last)}"))
    if restarts := whole(status, "restartCount"):
        rows.append(("", f"restarted {restarts} times"))
    for kind in ("requests", "limits"):
        if amounts := mapping(mapping(spec, "resources"), kind):
            message = ", ".join(f"{one_line(key)} {text(amounts, key)}" for key in amounts)
            rows.append(("", f"{kind}: {message}"))
    return rows


def _container_state(state: Mapping[str, Any]) -> str:
    if waiting := mapping(state, "waiting"):
        message = text(waiting, "message", 600)
        return f"waits: {text(waiting, 'reason')}{' - ' + message if message else ''}"
    if done := mapping(state, "terminated"):
        return ended(done)
    return f"runs since {text(mapping(state, 'running'), 'startedAt')}" if state else "not begun"


def _node(raw: Any) -> list[Row]:
    node = objects.kubernetes_node(raw)
    room = mapping(mapping(raw, "status"), "allocatable")
    message = "ready" if node.ready else "not ready"
    message += f": {node.reason}" if node.reason else ""
    rows = [*_top(raw), ("State", message), ("Cordoned", "yes" if node.cordoned else "no")]
    rows += [("Address", node.ip), ("Kubelet", node.version)]
    rows += [("Offers", ", ".join(f"{one_line(key)} {text(room, key)}" for key in room))]
    rows += [("" if n else "Taints", taint) for n, taint in enumerate(node.taints)]
    return rows + _conditions(raw)


def _rayjob(raw: Any) -> list[Row]:
    job = objects.ray_job(raw)
    spec = mapping(raw, "spec")
    rows = [*_top(raw), ("Entrypoint", job.entrypoint)]
    rows += [("State", f"{job.deployment}, the job {job.status.value}")]
    rows += [("Message", one_line(job.message, 600))] if job.message else []
    rows += [("Cluster", job.cluster or "not made yet"), ("Job id", job.id)]
    rows += [("Retries", f"{job.retries}, {job.tries}")] if job.retries else []
    for label, key in (
        ("Deadline", "activeDeadlineSeconds"),
        ("Kept after its end", "ttlSecondsAfterFinished"),
    ):
        if isinstance(spec.get(key), int):
            rows.append((label, f"{whole(spec, key)} s"))
    failing = text(mapping(raw, "status"), "jobStatusCheckFailureStartTime")
    rows += [("No answer", f"of Ray about the job since {failing}")] if failing else []
    return rows + _conditions({"status": mapping(mapping(raw, "status"), "rayClusterStatus")})


def _top(raw: Any) -> list[Row]:
    meta = mapping(raw, "metadata")
    namespace = text(meta, "namespace")
    made = seconds(meta.get("creationTimestamp"))
    name = f"{namespace}/{text(meta, 'name')}" if namespace else text(meta, "name")
    owners = ", ".join(
        f"{text(owner, 'kind')} {text(owner, 'name')}" for owner in items(meta, "ownerReferences")
    )
    rows = [("Name", name), ("Age", _age(server_time() - made) if made else "not known")]
    return rows + ([("Owner", owners)] if owners else [])


def _conditions(raw: Any) -> list[Row]:
    return [
        (
            "" if number else "Conditions",
            f"{text(each, 'type')} is {text(each, 'status')}"
            + f"  {text(each, 'reason')} {text(each, 'message')}".rstrip(),
        )
        for number, each in enumerate(items(mapping(raw, "status"), "conditions"))
    ]


def _state(pod: Pod) -> str:
    message = "ready" if pod.ready else pod.phase.value
    return f"{message}: {pod.reason}" if pod.reason else message


def _lines(rows: Iterable[Row]) -> str:
    listed = list(rows)
    width = min(24, max(len(label) for label, _ in listed) + 1)
    return "".join(
        f"{label + ':' if label else '':<{width}} {value}\n" for label, value in listed if value
    )


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"
