"""Create, stop and delete RayJobs. The watch reports their status.

Facts of KubeRay 1.7: HTTPMode submits from the operator, so that no image for a submitter is
needed. A Ray job that is STOPPED makes its RayJob Complete, without a retry. `suspend` is accepted
only for a RayJob that creates its cluster and has `shutdownAfterJobFinishes`; on any other it makes
the object permanently invalid. `ttlSecondsAfterFinished` is also accepted only with that flag, and
deletes the cluster; the RayJob stays, unless the operator is configured to delete it. A cluster
selected by `clusterSelector` is never deleted.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cockpit.backends.kuberay.api.client import KubeClient, KubeError
from cockpit.backends.kuberay.api.fields import boolean, checked, items, mapping, text
from cockpit.backends.kuberay.dashboard import Dashboards
from cockpit.backends.kuberay.resources import objects, precondition
from cockpit.backends.kuberay.resources.raycluster import ray_cluster
from cockpit.backends.kuberay.waiting.labels import queue_labels
from cockpit.backends.kuberay.watch import PATTERN_LABEL
from cockpit.backends.protocol import RayJobSpec
from cockpit.model.cluster import ClusterRef, NodeType
from cockpit.model.error import CockpitError, UnreachableError, UsageError
from cockpit.model.text import one_line

PACKAGE_LIMIT_BYTES = 1 << 20
"""The maximum size of a ConfigMap."""
FOLDER = "/cockpit"
"""Where the package is mounted in the pods of the new cluster."""
FILE = "package.zip"
PACKAGE_VOLUME = "cockpit-package"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?")
_IMAGE = re.compile(r"[a-z0-9]([\w.:/-]{0,253}\w)?(@sha256:[0-9a-f]{64})?")
_OVER = ("Complete", "Failed", "ValidationFailed")


async def create(client: KubeClient, ref: ClusterRef, raw: Any, spec: RayJobSpec) -> str:
    """`raw` is the current RayCluster: the job's cluster, or the pattern for the new one."""
    body = resource(ref, raw, spec)
    try:
        made = await client.create(path(ref), body)
    except KubeError as error:
        if error.status == 409:
            raise UsageError(
                f"There is a RayJob {spec.name!r} already in namespace {ref.namespace}.",
                todo="Give another name, or delete that one.",
            ) from error
        if error.status == 404:
            raise UsageError(
                f"RayJobs cannot be created in namespace {ref.namespace}.",
                one_line(error.what),
                "Check that KubeRay is installed and the namespace exists: cockpit doctor",
            ) from error
        raise
    if spec.own_cluster and spec.package:
        # Made after the RayJob, since it is owned by it; pods wait for it until it is there.
        try:
            await client.create(
                f"/api/v1/namespaces/{ref.namespace}/configmaps", _package(ref, made, spec)
            )
        except BaseException:  # also an interrupt: the pods wait for the package forever
            uid = text(mapping(made, "metadata"), "uid")
            body = precondition.delete_options(uid, propagationPolicy="Background")
            with suppress(CockpitError):
                removal = asyncio.ensure_future(client.delete(path(ref, spec.name), body))
                await asyncio.shield(removal)
            raise
    return spec.name


async def stop(
    client: KubeClient, ref: ClusterRef, name: str, uid: str, token_secret: str = ""
) -> None:
    """Stop the RayJob, as its state allows; one that is over is not changed.

    `token_secret` is as for `Dashboards`. A running Ray job is stopped over HTTP. Before it runs,
    or when its cluster does not respond, a cluster that the RayJob created is suspended; otherwise
    its deadline is set to the past.
    """
    raw = await _get(client, ref, name)
    precondition.require("RayJob", name, raw, uid)
    job = objects.ray_job(raw)
    if job.deployment in _OVER or job.status.is_over:
        return
    if job.deployment == "Running" and await _stop_by_http(client, ref, raw, token_secret):
        return
    spec = mapping(raw, "spec")
    if job.queue and boolean(spec, "suspend"):
        raise UsageError(
            f"RayJob {one_line(name)} waits in queue {job.queue}: there is nothing to stop yet.",
            todo=f"Remove it from the queue with: cockpit delete {name}",
        )
    # Kueue starts a suspended job again, as long as its workload is admitted.
    can_suspend = (
        boolean(spec, "shutdownAfterJobFinishes")
        and not mapping(spec, "clusterSelector")
        and not job.queue
    )
    field, value = ("suspend", True) if can_suspend else ("activeDeadlineSeconds", 1)
    change = {"op": "add", "path": f"/spec/{field}", "value": value}
    try:
        await client.patch(path(ref, name), (precondition.is_of(uid), change), kind="json")
    except KubeError:
        # A failed `test` is a 422 without the reason: was it this one?
        precondition.require("RayJob", name, await _get(client, ref, name), uid)
        raise


async def delete(client: KubeClient, ref: ClusterRef, name: str, uid: str) -> None:
    """With its own cluster and package; its operator stops a job that runs elsewhere first."""
    precondition.require("RayJob", name, await _get(client, ref, name), uid)
    body = precondition.delete_options(uid, propagationPolicy="Background")
    await precondition.guarded("RayJob", name, client.delete(path(ref, name), body))


def resource(ref: ClusterRef, raw: Any, spec: RayJobSpec) -> dict[str, Any]:
    """The RayJob's object. UsageError for what Kubernetes or KubeRay would not take."""
    _check(spec)
    runtime: dict[str, Any] = dict(spec.runtime_env)
    if working_dir := _working_dir(spec):
        runtime["working_dir"] = working_dir
    body: dict[str, Any] = {
        "entrypoint": spec.entrypoint,
        "submissionMode": "HTTPMode",
        "backoffLimit": spec.backoff_limit,
        "metadata": dict(spec.metadata),
    }
    if runtime:
        body["runtimeEnvYAML"] = _yaml(runtime)
    if spec.driver.cpus is not None:
        body["entrypointNumCpus"] = spec.driver.cpus
    if spec.driver.gpus is not None:
        body["entrypointNumGpus"] = spec.driver.gpus
    if spec.driver.custom:
        body["entrypointResources"] = json.dumps(dict(spec.driver.custom))
    if spec.deadline_s is not None:
        body["activeDeadlineSeconds"] = spec.deadline_s
    if spec.own_cluster:
        body["rayClusterSpec"] = own_cluster(raw, spec)
        body["shutdownAfterJobFinishes"] = True
        body["ttlSecondsAfterFinished"] = spec.ttl_s or 0
    else:
        body["clusterSelector"] = {objects.CLUSTER_LABEL: ref.name}
        if spec.ttl_s is not None:
            body["shutdownAfterJobFinishes"] = True
            body["ttlSecondsAfterFinished"] = spec.ttl_s
    labels = {"app.kubernetes.io/managed-by": "cockpit", **queue_labels(spec.queue)}
    if spec.own_cluster:
        labels[PATTERN_LABEL] = ref.name
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": spec.name, "namespace": ref.namespace, "labels": labels},
        "spec": body,
    }


def own_cluster(raw: Any, spec: RayJobSpec) -> dict[str, Any]:
    """The spec of a cluster after the pattern of `raw`, with the package in each of its pods."""
    made: dict[str, Any] = copy.deepcopy(mapping(raw, "spec"))
    made.pop("suspend", None)
    # Fields that are specific to one cluster: the name of its service, and its path in a shared
    # store.
    mapping(mapping(mapping(made, "headGroupSpec"), "headService"), "metadata").pop("name", None)
    mapping(made, "gcsFaultToleranceOptions").pop("externalStorageNamespace", None)
    groups = items(made, "workerGroupSpecs")
    named = {text(group, "groupName"): group for group in groups}
    if unknown := sorted(spec.replicas.keys() - named.keys()):
        raise UsageError(
            f"There is no worker group {one_line(unknown[0])!r} to give replicas to.",
            f"Groups: {', '.join(named) or 'none'}.",
        )
    for group in groups:
        group.pop("scaleStrategy", None)
    for name, replicas in spec.replicas.items():
        group = named[name]
        group["replicas"] = replicas
        group["minReplicas"] = min(group.get("minReplicas") or 0, replicas)
        if isinstance(group.get("maxReplicas"), int):
            group["maxReplicas"] = max(group["maxReplicas"], replicas)
    for group in (mapping(made, "headGroupSpec"), *groups):
        if spec.image:
            _set_image(group, spec.image)
        if spec.package:
            _mount(group, spec.name)
    return made


def _check(spec: RayJobSpec) -> None:
    if not _NAME.fullmatch(spec.name):
        raise UsageError(
            f"{one_line(spec.name)!r} cannot be the name of a RayJob.",
            "It takes lower-case letters, digits and dashes, a letter first, 47 at most.",
        )
    if spec.own_cluster and len(spec.package) > PACKAGE_LIMIT_BYTES:
        raise UsageError(
            f"The code is {len(spec.package) / 2**20:.1f} MiB as a package; the limit is 1 MiB"
            " for a RayJob with its own cluster.",
            todo="Launch it on the present cluster, or put the code into the image.",
        )
    if spec.image and not (spec.own_cluster and _IMAGE.fullmatch(spec.image)):
        raise UsageError(
            f"The image {one_line(spec.image, 80)!r} cannot be used.",
            "A cluster of the job's own takes one, as NAME:TAG or NAME@DIGEST.",
        )
    if spec.driver.memory_bytes is not None:
        raise UsageError(
            "--driver-memory cannot be set for a RayJob.",
            "KubeRay 1.7 has no field for it.",
            "Omit --via rayjob, or reserve a custom resource: --driver-resource NAME=N",
        )
    if spec.queue and not spec.own_cluster:
        raise UsageError(
            "--queue is for a cluster of the job's own.",
            "A job on the existing cluster starts no pods that could wait in a queue.",
            "Add --own-cluster.",
        )
    if any(count < 0 for count in spec.replicas.values()):
        raise UsageError("Replicas of a cluster of its own cannot be below 0.")


def _working_dir(spec: RayJobSpec) -> str:
    """Ray takes a zip by its `file:` address too, and drops the single folder at its top."""
    if spec.own_cluster and spec.package:
        return f"file://{FOLDER}/{FILE}"
    return spec.working_dir


def _set_image(group: Mapping[str, Any], image: str) -> None:
    """The image of Ray's container, which is the first, and of init containers that use it too."""
    pod = mapping(mapping(group, "template"), "spec")
    ray, *_ = items(pod, "containers")
    before = ray.get("image")
    for container in (ray, *items(pod, "initContainers")):
        if container.get("image") == before:
            container["image"] = image


def _mount(group: Mapping[str, Any], name: str) -> None:
    """The package into Ray's container, which is the first."""
    pod = mapping(mapping(group, "template"), "spec")
    volume = {"name": PACKAGE_VOLUME, "configMap": {"name": f"{name}-package"}}
    pod["volumes"] = [*items(pod, "volumes"), volume]
    for container in items(pod, "containers")[:1]:
        mount = {"name": PACKAGE_VOLUME, "mountPath": FOLDER, "readOnly": True}
        container["volumeMounts"] = [*items(container, "volumeMounts"), mount]


def _package(ref: ClusterRef, made: Any, spec: RayJobSpec) -> dict[str, Any]:
    """Owned by the RayJob, so that it is deleted with it."""
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "name": spec.name,
        "uid": text(mapping(made, "metadata"), "uid"),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{spec.name}-package",
            "namespace": ref.namespace,
            "ownerReferences": [owner],
        },
        "binaryData": {FILE: base64.b64encode(spec.package).decode()},
        "immutable": True,
    }


async def _stop_by_http(client: KubeClient, ref: ClusterRef, raw: Any, token_secret: str) -> bool:
    """False where there is no Ray job yet, or its own cluster does not answer."""
    from cockpit.sources.ray.dashboard import Dashboard
    from cockpit.sources.ray.http import MissingError

    status = mapping(raw, "status")
    job, cluster = text(status, "jobId"), text(status, "rayClusterName")
    if not job or not cluster:
        return False
    routes = Dashboards(client, token_secret=token_secret)
    try:
        base = f"/apis/ray.io/v1/namespaces/{ref.namespace}/rayclusters"
        found = ray_cluster(await client.get(f"{base}/{checked('RayCluster', cluster)}"))

        async def head() -> str:
            labels = f"{objects.CLUSTER_LABEL}={cluster},{objects.TYPE_LABEL}={NodeType.HEAD.value}"
            pods = f"/api/v1/namespaces/{ref.namespace}/pods"
            answer = await client.get(pods, {"labelSelector": labels})
            names = [objects.pod(item).name for item in items(answer, "items")]
            if not names:
                raise UnreachableError(f"RayCluster {cluster} has no head pod.")
            return names[0]

        async with Dashboard(await routes.route(found, head)) as dashboard:
            await dashboard.stop(job)
        return True
    except MissingError:
        return False
    except (KubeError, UnreachableError):
        if mapping(mapping(raw, "spec"), "clusterSelector"):
            raise
        return False
    finally:
        await routes.aclose()


async def _get(client: KubeClient, ref: ClusterRef, name: str) -> Any:
    if (found := await client.find(path(ref, name))) is not None:
        return found
    raise UsageError(
        f"There is no RayJob {one_line(name)!r} in namespace {ref.namespace}.",
        todo="See: cockpit jobs",
    )


def path(ref: ClusterRef, name: str | None = None) -> str:
    """The path of the collection, or of one RayJob."""
    collection = f"/apis/ray.io/v1/namespaces/{ref.namespace}/rayjobs"
    return collection if name is None else f"{collection}/{checked('RayJob', name)}"


def _yaml(value: Any) -> str:
    import yaml

    return str(yaml.safe_dump(value, default_flow_style=False, allow_unicode=True))
