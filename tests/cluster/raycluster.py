"""RayClusters for the test cluster: pods that run the Ray of this virtual environment.

The image is an empty root; /usr, Python and the virtual environment are the host's, mounted
read-only at the same places, so that nothing has to be built, pulled or unpacked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.cluster.host_image import CODE, OF_IMAGE, host_folders
from tests.cluster.kwok import TOLERATION
from tests.cluster.node import ROOT_IMAGE

STORAGE = "/mnt/shared"
"""The path in a pod of the shared folder, if the cluster has one."""

RAY_SETTINGS: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_STATE_TRACKING": "1",  # otherwise /api/train/v2/runs/v1 returns 500
    "RAY_raylet_start_wait_time_s": "90",  # instead of 30, as in cockpit's local pods
}
HEAD_CPU = "500m"
"""Ranks that train take all CPUs: with the weight of a worker, the head would hardly run."""


@dataclass(frozen=True, slots=True)
class Mounts:
    """What a pod needs to run this Ray, as a Kubernetes manifest."""

    volumes: list[dict[str, Any]]
    volume_mounts: list[dict[str, Any]]
    env: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Group:
    """A worker group. Counts are replicas, each of `hosts` pods."""

    name: str = "gpu"
    replicas: int = 1
    min: int = 0
    max: int = 4
    hosts: int = 1
    cpus: int = 1
    """For Ray."""
    limit_cpus: int = 0
    """Of the pod; 0: as many as for Ray."""
    gpus: int = 0
    """Of the pod's limits. A node has GPUs only where it is simulated."""
    idle_timeout_s: int | None = None
    capabilities: tuple[str, ...] = ()
    """Of the Ray container, beyond the default ones: what some drills need."""


def ray_container_mounts(
    storage: Path | None = None, *, settings: Mapping[str, str] | None = None
) -> Mounts:
    """`storage` is a folder of the host that every pod sees at STORAGE; it is made if need be.

    `settings` are environment variables on top of RAY_SETTINGS.
    """
    volumes, volume_mounts = [], []
    folders = {folder: folder for folder in host_folders()} | OF_IMAGE
    for number, (inside, outside) in enumerate(folders.items()):
        volumes.append({"name": f"host-{number}", "hostPath": {"path": outside}})
        volume_mounts.append({"name": f"host-{number}", "mountPath": inside, "readOnly": True})
    if storage is not None:
        place = {"path": str(storage), "type": "DirectoryOrCreate"}
        volumes.append({"name": "storage", "hostPath": place})
        volume_mounts.append({"name": "storage", "mountPath": STORAGE})
    environment = {
        "PATH": f"{CODE}/bin:{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": CODE,
        "HOME": "/root",
        "USER": "root",
        **RAY_SETTINGS,
        **(settings or {}),
    }
    env = [{"name": name, "value": value} for name, value in environment.items()]
    return Mounts(volumes, volume_mounts, env)


def ray_pod_template(
    container: str,
    *,
    memory: str,
    cpus: int = 1,
    requested_cpu: str = "100m",
    gpus: int = 0,
    storage: Path | None = None,
    settings: Mapping[str, str] | None = None,
    simulated: bool = False,
    capabilities: Sequence[str] = (),
) -> dict[str, Any]:
    """A pod with one container for Ray. `memory` is its limit, as Kubernetes writes it.

    `requested_cpu` is its weight where CPUs are scarce.
    `simulated` is a pod for a simulated node, where nothing is mounted and nothing runs.
    """
    limits = {"cpu": str(cpus), "memory": memory}
    requests = {"cpu": requested_cpu, "memory": "256Mi"}
    if gpus:
        limits["nvidia.com/gpu"] = requests["nvidia.com/gpu"] = str(gpus)
    ray: dict[str, Any] = {
        "name": container,
        "image": ROOT_IMAGE,
        "imagePullPolicy": "Never",
        "resources": {"requests": requests, "limits": limits},
    }
    if capabilities:
        ray["securityContext"] = {"capabilities": {"add": list(capabilities)}}
    spec: dict[str, Any] = {"containers": [ray]}
    if simulated:
        spec["tolerations"] = [TOLERATION]
    else:
        mounts = ray_container_mounts(storage, settings=settings)
        ray |= {"env": mounts.env, "volumeMounts": mounts.volume_mounts}
        spec["volumes"] = mounts.volumes
    return {"spec": spec}


def ray_cluster(
    name: str = "demo",
    groups: Sequence[Group] = (Group(),),
    *,
    namespace: str = "default",
    token: bool = True,
    autoscaler: bool = False,
    storage: Path | None = None,
    settings: Mapping[str, str] | None = None,
    simulated: bool = False,
) -> dict[str, Any]:
    """A RayCluster of a head that runs no tasks and some groups of workers."""
    template = partial(ray_pod_template, storage=storage, settings=settings, simulated=simulated)
    spec: dict[str, Any] = {
        "rayVersion": version("ray") if find_spec("ray") else "",
        "headGroupSpec": {
            "rayStartParams": {
                "dashboard-host": "0.0.0.0",
                "num-cpus": "0",
                "object-store-memory": "200000000",
            },
            "template": template("ray-head", memory="4Gi", requested_cpu=HEAD_CPU),
        },
        "workerGroupSpecs": [_group(group, template) for group in groups],
    }
    if token:
        spec["authOptions"] = {"mode": "token"}
    if autoscaler:
        mounts = ray_container_mounts(storage, settings=settings)
        spec["enableInTreeAutoscaling"] = True
        spec["autoscalerOptions"] = {
            "version": "v2",
            "idleTimeoutSeconds": 20,
            "image": ROOT_IMAGE,
            "imagePullPolicy": "Never",
            "env": mounts.env,
            "volumeMounts": mounts.volume_mounts,
            "resources": {
                "requests": {"cpu": "50m", "memory": "100Mi"},
                "limits": {"cpu": "500m", "memory": "1Gi"},
            },
        }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _group(group: Group, template: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "groupName": group.name,
        "replicas": group.replicas,
        "minReplicas": group.min,
        "maxReplicas": group.max,
        "numOfHosts": group.hosts,
        "rayStartParams": {
            "num-cpus": str(group.cpus),
            "object-store-memory": "100000000",
        },
        "template": template(
            "ray-worker",
            memory="3Gi",
            cpus=group.limit_cpus or group.cpus,
            gpus=group.gpus,
            capabilities=group.capabilities,
        ),
    }
    if group.idle_timeout_s is not None:
        spec["idleTimeoutSeconds"] = group.idle_timeout_s
    return spec
