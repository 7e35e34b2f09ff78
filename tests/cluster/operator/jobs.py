"""RayJobs: a new cluster for each, or an existing one, the job on it, and the end of both.

The job is submitted and followed over HTTP from here, in K8sJobMode too: the real operator starts a
Kubernetes Job, whose pod does the same. SidecarMode and deletionStrategy are not supported.
"""

from __future__ import annotations

import copy
import logging
import secrets
import string
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from tests.cluster.operator import raycluster, rayjob, verdict
from tests.cluster.operator.api import Api, ApiError, Object
from tests.cluster.operator.belongings import head_service
from tests.cluster.operator.clusters import Clusters
from tests.cluster.operator.dashboard import PORT, Dashboard, DashboardError
from tests.cluster.operator.events import Events
from tests.cluster.operator.mirror import Key, Mirror
from tests.cluster.operator.rayjob import FINALIZER, RayJob
from tests.cluster.operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

AGAIN_S = 3.0
"""The real operator's poll interval of the dashboard."""
SUBMIT_AFTER_S = 3.0
"""In HTTPMode the real operator sets Running first, and submits at the next reconciliation: its
status update triggers none (GenerationChangedPredicate), so it comes after AGAIN_S."""
SILENCE_S = 300.0
"""How long the dashboard may fail to report on a job."""
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")
_OF_A_TRY = (
    "rayClusterName",
    "dashboardURL",
    "jobId",
    "message",
    "reason",
    "jobStatusCheckFailureStartTime",
    "jobStatus",
)


class Jobs:
    def __init__(self, api: Api, events: Events, clusters: Clusters, within: str) -> None:
        self._api = api
        self._events = events
        self._clusters = clusters
        self._running_since: dict[Key, float] = {}
        self.queue = WorkQueue(self._settle)
        scope = f"/namespaces/{within}" if within else ""
        self.jobs = Mirror(api, f"{raycluster.GROUP}{scope}/rayjobs", rayjob.parse, self._changed)
        clusters.observers.append(self._cluster_changed)

    def _changed(self, item: Object) -> None:
        self.queue.add(Key.of(item))

    def _cluster_changed(self, item: Object) -> None:
        for owner in item["metadata"].get("ownerReferences", ()):
            if owner["kind"] == "RayJob":
                self.queue.add(Key(item["metadata"]["namespace"], owner["name"]))

    async def _settle(self, key: Key) -> float | None:
        job = self.jobs.get(key)
        if job is None:
            return None
        if job.going:
            await self._farewell(job)
            return None
        after: dict[str, Any] = dict(copy.deepcopy(job.status))
        if why := rayjob.fault(job):
            self._events.record(
                job.item, "InvalidRayJobSpec", "Validate", f"{key}: {why}", kind="Warning"
            )
            after |= {"reason": "ValidationFailed", "message": why}
            after["jobDeploymentStatus"] = "ValidationFailed"
            await self._tell(job, after)
            return None
        again_s = await self._step(job, after)
        verdict.count(job, after)
        # One move leads to the next.
        return 0.0 if await self._tell(job, after) else again_s

    async def _step(self, job: RayJob, after: dict[str, Any]) -> float | None:
        """One move of the job's life, written into `after`."""
        state = job.said("jobDeploymentStatus")
        if state in ("Initializing", "Running") and job.suspend:
            after["jobDeploymentStatus"] = "Suspending"
        elif state in ("Initializing", "Running") and verdict.too_late(job):
            verdict.fail(
                after, "DeadlineExceeded", "The RayJob has passed the activeDeadlineSeconds."
            )
        elif not state:
            await self._begin(job, after)
        elif state == "Initializing":
            await self._prepare(job, after)
        elif state == "Waiting":
            if job.job_id:
                after |= {"jobId": job.job_id, "jobDeploymentStatus": "Running"}
        elif state == "Running":
            await self._follow(job, after)
        elif state in ("Suspending", "Retrying"):
            if await self._cluster_is_gone(job):
                for name in _OF_A_TRY:
                    after.pop(name, None)
                after |= {"rayJobInfo": {}, "rayClusterStatus": {}}
                after["jobDeploymentStatus"] = "Suspended" if state == "Suspending" else ""
        elif state == "Suspended":
            if job.suspend:
                return None
            after["jobDeploymentStatus"] = ""
        elif state in ("Complete", "Failed"):
            return await self._clean_up(job)
        else:
            return None
        return AGAIN_S

    async def _begin(self, job: RayJob, after: dict[str, Any]) -> None:
        if FINALIZER not in job.finalizers:
            patch = {"metadata": {"finalizers": [*job.finalizers, FINALIZER]}}
            self.jobs.learn(await self._api.merge(job.path, patch))
        name = job.key.name
        if job.mode != "InteractiveMode":
            after["jobId"] = job.job_id or f"{name}-{_suffix()}"
        after["rayClusterName"] = job.selected_cluster or f"{name}-{_suffix()}"
        after["jobDeploymentStatus"] = "Initializing"
        after["startTime"] = verdict.now()
        after.setdefault("rayJobInfo", {})

    async def _prepare(self, job: RayJob, after: dict[str, Any]) -> None:
        item = await self._cluster(job)
        if item is None:
            return
        after["rayClusterStatus"] = item.get("status") or {}
        if after["rayClusterStatus"].get("state") != "ready":
            return
        service = raycluster.parse(item).head_address
        after["dashboardURL"] = f"{service}:{PORT}"
        interactive = job.mode == "InteractiveMode"
        self._running_since[job.key] = time.monotonic()
        after["jobDeploymentStatus"] = "Waiting" if interactive else "Running"

    async def _follow(self, job: RayJob, after: dict[str, Any]) -> None:
        since_s = time.monotonic() - self._running_since.get(job.key, 0.0)
        if job.mode == "HTTPMode" and since_s < SUBMIT_AFTER_S:
            return
        item = await self._cluster(job)
        if item is None:
            return
        cluster = raycluster.parse(item)
        if not job.selected_cluster:
            await self._service(job, cluster)
        dashboard = Dashboard(
            self._api, cluster.namespace, cluster.head_service, cluster.token_secret
        )
        since = job.said("jobStatusCheckFailureStartTime")
        if since and verdict.passed(since, SILENCE_S):
            message = f"Job status checks have been failing since {since}"
            verdict.fail(after, "JobStatusCheckTimeoutExceeded", message)
            return
        try:
            info = await dashboard.job(job.said("jobId"))
            if info is None and job.mode != "InteractiveMode":
                await dashboard.submit(job.request())
        except (DashboardError, httpx.HTTPError) as error:
            log.info("%s: %s", job.key, error)
            after.setdefault("jobStatusCheckFailureStartTime", verdict.now())
            return
        after.pop("jobStatusCheckFailureStartTime", None)
        if info is None:
            return
        after["rayClusterStatus"] = item.get("status") or {}
        after["jobStatus"] = info.status
        after["message"] = info.message
        times = {"startTime": info.start_ms, "endTime": info.end_ms}
        after["rayJobInfo"] = {name: verdict.time(ms) for name, ms in times.items() if ms}
        if info.ended:
            after["jobDeploymentStatus"] = "Complete"
        if info.status == "FAILED":
            verdict.fail(after, "AppFailed", info.message)

    async def _cluster(self, job: RayJob) -> Object | None:
        """The cluster that it runs on, made if it is to have its own."""
        key = Key(job.key.namespace, job.said("rayClusterName"))
        item = self._clusters.clusters.get(key)
        if item is not None:
            return item
        if job.selected_cluster:
            note = f"RayCluster {key} set in the clusterSelector is not found."
            note += " It must be created manually"
            self._events.record(job.item, "RayClusterNotFound", "Validate", note, kind="Warning")
            return None
        path = f"{raycluster.GROUP}/namespaces/{key.namespace}/rayclusters"
        try:
            made = await self._api.create(path, job.cluster())
        except ApiError as error:
            if error.status != 409:
                note = f"Failed to create RayCluster {key}: {error}"
                self._events.record(
                    job.item, "FailedToCreateRayCluster", "Create", note, kind="Warning"
                )
            raise
        self._events.record(job.item, "CreatedRayCluster", "Create", f"Created RayCluster {key}")
        self._clusters.clusters.learn(made)
        self._clusters.queue.add(key)
        return made

    async def _service(self, job: RayJob, cluster: raycluster.Cluster) -> None:
        """A head service under the job's own name, since each retry has another cluster."""
        manifest = head_service(cluster)
        name = f"{job.key.name}-head-svc"
        labels = {
            "ray.io/originated-from-cr-name": job.key.name,
            "ray.io/originated-from-crd": "RayJob",
            "ray.io/node-type": "head",
            "ray.io/identifier": f"{job.key.name}-head",
        }
        manifest["metadata"] = {"name": name, "labels": labels, "ownerReferences": [job.owner]}
        path = f"/api/v1/namespaces/{job.key.namespace}/services"
        try:
            found = await self._api.get(f"{path}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            await self._api.create(path, manifest)
            note = f"Created the service {job.key.namespace}/{name}"
            self._events.record(job.item, "CreatedService", "Create", note)
            return
        selector = manifest["spec"]["selector"]
        if found["spec"]["selector"] != selector:
            await self._api.merge(f"{path}/{name}", {"spec": {"selector": selector}})

    async def _cluster_is_gone(self, job: RayJob) -> bool:
        name = job.said("rayClusterName")
        if job.selected_cluster or not name:
            return True
        path = f"{raycluster.GROUP}/namespaces/{job.key.namespace}/rayclusters/{name}"
        try:
            if "deletionTimestamp" in (await self._api.get(path))["metadata"]:
                return False
            await self._api.delete(path)
        except ApiError as error:
            if error.status == 404:
                return True
            raise
        note = f"Deleted cluster {job.key.namespace}/{name}"
        self._events.record(job.item, "DeletedRayCluster", "Delete", note)
        return False

    async def _clean_up(self, job: RayJob) -> float | None:
        """Its cluster is deleted when its time is over; the RayJob stays."""
        if job.selected_cluster or not job.shut_down:
            return None
        end = datetime.fromisoformat(job.said("endTime")) + timedelta(seconds=job.ttl_s)
        wait_s = (end - datetime.now(UTC)).total_seconds()
        if wait_s > 0:
            return wait_s
        await self._cluster_is_gone(job)
        return None

    async def _farewell(self, job: RayJob) -> None:
        """The job is stopped if it still runs, and the object deleted in any case."""
        if FINALIZER not in job.finalizers:
            return
        key = Key(job.key.namespace, job.said("rayClusterName"))
        item = self._clusters.clusters.get(key)
        if item is not None and job.said("jobStatus") not in _OVER:
            cluster = raycluster.parse(item)
            dashboard = Dashboard(
                self._api, cluster.namespace, cluster.head_service, cluster.token_secret
            )
            try:
                await dashboard.stop(job.said("jobId"))
            except (DashboardError, httpx.HTTPError) as error:
                log.info("%s: %s", job.key, error)
        kept = [name for name in job.finalizers if name != FINALIZER]
        try:
            # Otherwise a second reconciliation, before the watch has reported the deletion, would
            # stop it again.
            self.jobs.learn(await self._api.merge(job.path, {"metadata": {"finalizers": kept}}))
        except ApiError as error:
            if error.status != 404:
                raise

    async def _tell(self, job: RayJob, after: dict[str, Any]) -> bool:
        """Whether there was something new to report."""
        if after == job.status:
            return False
        if after.get("jobDeploymentStatus") in ("Complete", "Failed"):
            after.setdefault("endTime", verdict.now())
        else:
            after.pop("endTime", None)
        held = self.jobs.get(job.key)
        if held is None:
            return False
        body = {**held.item, "status": after}
        self.jobs.learn(await self._api.replace(f"{job.path}/status", body))
        return True


def _suffix() -> str:
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(5))
