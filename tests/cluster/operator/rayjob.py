"""A RayJob as the operator reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from tests.cluster.operator.api import Object
from tests.cluster.operator.mirror import Key
from tests.cluster.operator.raycluster import GROUP, owner

FINALIZER = "ray.io/rayjob-finalizer"
LONGEST_NAME = 47
CLUSTER_LABEL = "ray.io/cluster"


@dataclass(frozen=True, slots=True)
class RayJob:
    key: Key
    item: Object
    uid: str
    going: bool
    finalizers: tuple[str, ...]
    selected_cluster: str
    """An existing cluster to run on; empty for a new one."""
    cluster_spec: Object | None
    mode: str
    job_id: str
    suspend: bool
    shut_down: bool
    ttl_s: int
    deadline_s: int | None
    backoff_limit: int
    status: Mapping[str, object]

    @property
    def path(self) -> str:
        return f"{GROUP}/namespaces/{self.key.namespace}/rayjobs/{self.key.name}"

    @property
    def owner(self) -> Object:
        return owner("RayJob", self.key.name, self.uid)

    def said(self, name: str) -> str:
        """A text of the status, empty if it is not there."""
        return str(self.status.get(name) or "")

    def request(self) -> Object:
        """The submission to the dashboard."""
        spec = self.item["spec"]
        request: Object = {
            "entrypoint": spec.get("entrypoint", ""),
            "submission_id": self.said("jobId"),
        }
        if spec.get("metadata"):
            request["metadata"] = spec["metadata"]
        if spec.get("runtimeEnvYAML"):
            request["runtime_env"] = yaml.safe_load(spec["runtimeEnvYAML"])
        if spec.get("entrypointNumCpus"):
            request["entrypoint_num_cpus"] = spec["entrypointNumCpus"]
        if spec.get("entrypointNumGpus"):
            request["entrypoint_num_gpus"] = spec["entrypointNumGpus"]
        if spec.get("entrypointResources"):
            request["entrypoint_resources"] = json.loads(spec["entrypointResources"])
        return request

    def cluster(self) -> Object:
        """The RayCluster that it creates."""
        meta = self.item["metadata"]
        labels = {
            **meta.get("labels", {}),
            "ray.io/originated-from-cr-name": self.key.name,
            "ray.io/originated-from-crd": "RayJob",
            "ray.io/job-submission-mode": self.mode,
        }
        return {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {
                "name": self.said("rayClusterName"),
                "namespace": self.key.namespace,
                "labels": labels,
                "annotations": dict(meta.get("annotations", {})),
                "ownerReferences": [self.owner],
            },
            "spec": self.cluster_spec,
        }


def parse(item: Object) -> RayJob:
    meta, spec = item["metadata"], item["spec"]
    return RayJob(
        key=Key.of(item),
        item={"apiVersion": "ray.io/v1", "kind": "RayJob", **item},
        uid=meta["uid"],
        going="deletionTimestamp" in meta,
        finalizers=tuple(meta.get("finalizers", ())),
        selected_cluster=(spec.get("clusterSelector") or {}).get(CLUSTER_LABEL, ""),
        cluster_spec=spec.get("rayClusterSpec"),
        mode=spec.get("submissionMode") or "K8sJobMode",
        job_id=spec.get("jobId", ""),
        suspend=spec.get("suspend") or False,
        shut_down=spec.get("shutdownAfterJobFinishes") or False,
        ttl_s=spec.get("ttlSecondsAfterFinished") or 0,
        deadline_s=spec.get("activeDeadlineSeconds"),
        backoff_limit=spec.get("backoffLimit") or 0,
        status=item.get("status") or {},
    )


def fault(job: RayJob) -> str:
    """Why the real operator would refuse it; empty if it would not."""
    if len(job.key.name) > LONGEST_NAME:
        return f"RayJob name should be no more than {LONGEST_NAME} characters"
    if job.suspend and not job.shut_down:
        return (
            "The RayJob spec is invalid: a RayJob with shutdownAfterJobFinishes set to false "
            "is not allowed to be suspended"
        )
    if job.suspend and job.selected_cluster:
        return (
            "The RayJob spec is invalid: the ClusterSelector mode doesn't support "
            "the suspend operation"
        )
    if job.cluster_spec is None and "clusterSelector" not in job.item["spec"]:
        return "The RayJob spec is invalid: one of RayClusterSpec or ClusterSelector must be set"
    if job.cluster_spec is None and not job.selected_cluster:
        return "cluster name in ClusterSelector should not be empty"
    if job.backoff_limit and job.selected_cluster:
        return "The RayJob spec is invalid: BackoffLimit is incompatible with ClusterSelector mode"
    if job.deadline_s is not None and job.deadline_s <= 0:
        return "The RayJob spec is invalid: activeDeadlineSeconds must be a positive integer"
    try:
        yaml.safe_load(job.item["spec"].get("runtimeEnvYAML") or "")
    except yaml.YAMLError as error:
        return f"failed to unmarshal RuntimeEnvYAML: {error}"
    return ""
