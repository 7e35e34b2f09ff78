"""The pods of a RayCluster, as they are created."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
from collections.abc import Mapping

from tests.cluster.operator import environment, ray_start
from tests.cluster.operator.api import Object
from tests.cluster.operator.containers import autoscaler, probes, wait_for_gcs
from tests.cluster.operator.pod import HOST_INDEX, REPLICA_INDEX, REPLICA_NAME
from tests.cluster.operator.raycluster import HEAD_GROUP, Cluster, Group, checked_name

WAIT_FOR_GCS = "ENABLE_INIT_CONTAINER_INJECTION"
"""The operator's own variable: `false` leaves the init container of workers out."""
OWN_COMMAND = "ray.io/overwrite-container-cmd"
LONGEST_PREFIX = 50
SHELL = ["/bin/bash", "-c", "--"]


def head_pod(cluster: Cluster) -> Object:
    pod = _pod(cluster, cluster.head_template, HEAD_GROUP, f"{cluster.name[:LONGEST_PREFIX]}-head-")
    ray = pod["spec"]["containers"][0]
    given = dict(cluster.head_params)
    notes = pod["metadata"]["annotations"]
    if cluster.autoscaler is not None:
        given["no-monitor"] = "true"
        service_account = pod["spec"].get("serviceAccountName") or cluster.name
        pod["spec"]["serviceAccountName"] = checked_name(service_account)
        pod["spec"]["containers"].append(autoscaler(cluster, ray["image"]))
        value = "true" if cluster.autoscaler.v2 else "false"
        ray["env"] = [*ray.get("env", []), environment.plain("RAY_enable_autoscaler_v2", value)]
        if cluster.autoscaler.v2:
            pod["spec"]["restartPolicy"] = "Never"
    notes["ray.io/ft-enabled"] = "true" if cluster.redis else "false"
    if cluster.redis:
        notes["ray.io/external-storage-namespace"] = cluster.uid
        environment.add_missing(ray, *environment.redis(cluster))
        if "redisPassword" in cluster.redis:
            given["redis-password"] = "$REDIS_PASSWORD"
    notes["ray.io/kuberay-version"] = environment.VERSION
    notes["ray.io/upgrade-strategy-recreate-hash"] = _digest(cluster)
    _finish(pod, cluster, given, head=True)
    if cluster.autoscaler is not None:
        for container in (ray, pod["spec"]["containers"][-1]):
            _mount(pod, container, "ray-logs", "/tmp/ray", {})
    return pod


def worker_pod(cluster: Cluster, group: Group, index: int, host: int, replica: str) -> Object:
    """`replica` names the replica that the pod is a host of, where a replica has several."""
    prefix = f"{cluster.name}-{group.name}"[:LONGEST_PREFIX].lower()
    pod = _pod(cluster, group.template, group.name, f"{prefix}-worker-")
    labels = pod["metadata"]["labels"]
    labels[REPLICA_INDEX] = str(index)
    if group.hosts > 1:
        labels[REPLICA_NAME] = replica
        labels[HOST_INDEX] = str(host)
    spec = pod["spec"]
    if os.environ.get(WAIT_FOR_GCS, "true").lower() != "false":
        port = ray_start.head_port(cluster.head_params)
        waiting = wait_for_gcs(spec["containers"][0], f"{cluster.head_address}:{port}")
        spec["initContainers"] = [*spec.get("initContainers", []), waiting]
        environment.add_missing(waiting, *environment.token(cluster))
    if cluster.autoscaler is not None and cluster.autoscaler.v2:
        spec["restartPolicy"] = "Never"
    if cluster.redis:
        longer = environment.plain("RAY_gcs_rpc_server_reconnect_timeout_s", "600")
        environment.add_missing(spec["containers"][0], longer)
    _finish(pod, cluster, group.start_params, head=False)
    return pod


def _pod(cluster: Cluster, template: Object, group: str, prefix: str) -> Object:
    role = "head" if group == HEAD_GROUP else "worker"
    meta = template.get("metadata") or {}
    fixed = {"ray.io/node-type": role, "ray.io/group": group, "ray.io/cluster": cluster.name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": prefix,
            "namespace": cluster.namespace,
            "labels": {
                "app.kubernetes.io/created-by": "kuberay-operator",
                "app.kubernetes.io/name": "kuberay",
                "ray.io/identifier": f"{cluster.name}-{role}"[-63:],
                "ray.io/is-ray-node": "yes",
                **(meta.get("labels") or {}),
                **fixed,
            },
            "annotations": dict(meta.get("annotations") or {}),
            "ownerReferences": [cluster.owner],
        },
        "spec": copy.deepcopy(template["spec"]),
    }


def _finish(pod: Object, cluster: Cluster, given: Mapping[str, str], *, head: bool) -> None:
    spec = pod["spec"]
    ray = spec["containers"][0]
    resources = ray.get("resources") or {}
    if not any(port.get("name") == "metrics" for port in ray.get("ports", ())):
        metrics = {"name": "metrics", "containerPort": ray_start.METRICS_PORT}
        ray["ports"] = [*ray.get("ports", []), metrics]
    environment.add_missing(ray, *environment.token(cluster))
    if "plasma-directory" not in given:
        limit = _first(resources, "limits", "requests")
        store = {"medium": "Memory", **({"sizeLimit": limit} if limit else {})}
        _mount(pod, ray, "shared-mem", "/dev/shm", store)
    found = ray_start.parameters(given, resources, address="" if head else cluster.head_address)
    command = ray_start.command(found, head=head)
    own = "".join(f" {part} " for part in (*ray.get("command", ()), *ray.get("args", ())))
    overwritten = cluster.annotations.get(OWN_COMMAND, "").lower() == "true"
    if not overwritten and "ray start" not in own:
        start = f"ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {command}"
        ray["command"] = SHELL
        ray["args"] = [f"{own} && {start}" if own else start]
    for container in spec.get("initContainers", ()):
        container.setdefault("env", []).extend(environment.head_location(cluster))
    port = ray_start.head_port(cluster.head_params)
    environment.give(ray, cluster, head=head, command=command, port=port)
    for name, probe in probes(cluster.ray_version, found, head=head).items():
        ray.setdefault(name, probe)


def _mount(pod: Object, container: Object, name: str, path: str, store: Object) -> None:
    mounts = container.setdefault("volumeMounts", [])
    if any(mount["mountPath"] == path for mount in mounts):
        return
    volumes = pod["spec"].setdefault("volumes", [])
    if not any(volume["name"] == name for volume in volumes):
        volumes.append({"name": name, "emptyDir": store})
    mounts.append({"name": name, "mountPath": path})


def _first(resources: Object, *kinds: str) -> str:
    for kind in kinds:
        if memory := (resources.get(kind) or {}).get("memory"):
            return str(memory)
    return ""


def _digest(cluster: Cluster) -> str:
    """Changes with the templates; the real operator's own value is not reproduced."""
    parts = [cluster.head_template, *(group.template for group in cluster.groups)]
    text = json.dumps(parts, sort_keys=True).encode()
    return base64.b32encode(hashlib.sha1(text, usedforsecurity=False).digest()).decode()
