"""A RayCluster on Kubernetes behind the Protocol that every kind of cluster answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from math import ceil
from typing import Any, TypeVar

from msgspec.structs import replace

from cockpit.backends.kuberay.api import access
from cockpit.backends.kuberay.api.client import KubeClient, KubeError
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.fields import checked, items, mapping, text, usable, whole
from cockpit.backends.kuberay.dashboard import Dashboards
from cockpit.backends.kuberay.resources import fault, lease, objects, precondition, quota, scale
from cockpit.backends.kuberay.resources.clusters import where_else
from cockpit.backends.kuberay.resources.event import announce
from cockpit.backends.kuberay.resources.raycluster import RayCluster, ray_cluster
from cockpit.backends.kuberay.watch import KINDS, ClusterWatch
from cockpit.backends.protocol import Change, ExecResult, RayJobSpec, Scaled, Terminal
from cockpit.model.cluster import (
    Capability,
    ClusterRef,
    DashboardRoute,
    NodeType,
    Pod,
    PodPhase,
    QuotaRoom,
)
from cockpit.model.error import ChangedError, CockpitError, UnreachableError, UsageError
from cockpit.model.event import Event
from cockpit.model.new_cluster import NewCluster
from cockpit.model.scale import ScaleRequest
from cockpit.model.text import clean, one_line
from cockpit.sources.polling.shared_call import SharedCall

T = TypeVar("T")

RETRIES = 4
"""How often a change is retried because the object changed under it."""
CLEAN_UP_S = 10.0
"""How long the operator may take to act on `workersToDelete` before we stop waiting."""
CLEAN_UP_POLL_S = 0.3
_TEST_FAILED = "rejected our request"
"""The API server's (1.34) only message for a JSON patch whose `test` does not hold."""


class KubeRayBackend:
    """Sends no request before the first call. `kinds` limits what `watch` lists.

    `watch` follows a RayJob from the cluster of one try to that of the next: `ref` changes then.

    `dashboard_url` is used instead of the route through the API server. `token_secret` is a Secret
    that may be read for Ray's token, in addition to the one that KubeRay creates. Raises UsageError
    for an invalid name of cluster or namespace: names are used in paths, and a RayJob's status may
    have set the cluster's.
    """

    def __init__(
        self,
        credentials: Credentials,
        ref: ClusterRef,
        *,
        dashboard_url: str = "",
        token_secret: str = "",
        kinds: Collection[str] | None = None,
    ) -> None:
        checked("RayCluster", ref.name)
        checked("namespace", ref.namespace)
        self._ref = ref
        self._token_secret = token_secret
        self.client = KubeClient(credentials)
        self._kinds = KINDS if kinds is None else kinds
        self._dashboards = Dashboards(self.client, dashboard_url, token_secret)
        self._route = SharedCall(self._find_dashboard)
        self._who: str | None = None
        self._watching: ClusterWatch | None = None

    @property
    def ref(self) -> ClusterRef:
        return self._ref

    async def watch(self) -> AsyncIterator[Event]:
        while True:
            watching = ClusterWatch(self.client, self._ref, self._kinds)
            self._watching = watching
            try:
                async with aclosing(watching.events()) as events:
                    async for event in events:
                        yield event
            finally:
                if self._watching is watching:
                    self._watching = None
            self._ref = replace(self._ref, name=watching.next_cluster)

    async def scale(self, request: ScaleRequest) -> Scaled:
        """Counts are replicas: with several hosts a replica, that many pods each."""
        group = request.group

        async def once() -> scale.Plan:
            raw = await self._raw()
            cluster = ray_cluster(raw)
            if request.uid:
                precondition.require("RayCluster", self._ref.name, raw, request.uid)
            found = scale.find(cluster, group).wanted
            if request.expected is not None and found != request.expected:
                raise ChangedError(one_line(group), found, request.expected)
            pods = await self._pods(cluster, group)
            plan = scale.plan(cluster, raw, request, pods, _idle_s(raw))
            await self.client.patch(
                self._path, (precondition.is_of(cluster.uid), *plan.patch), kind="json"
            )
            return plan

        plan = await _retried(once)
        warning = plan.warning
        if plan.removed and not await self._forget_removed(group, plan.removed):
            kept = "workersToDelete keeps their names until the next change: the operator is slow"
            warning = f"{warning}; {kept}" if warning else kept
        return Scaled(group, plan.before, plan.after, warning)

    async def delete_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        precondition.require("Pod", pod, await self._pod(pod), uid)
        body = precondition.delete_options(uid, gracePeriodSeconds=ceil(grace_s))
        request = self.client.delete(self._pod_path(pod), body)
        await self._named(pod, precondition.guarded("Pod", pod, request))

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        if not argv:
            raise UsageError("There is nothing to execute.", todo="Give a command after --.")
        from cockpit.backends.kuberay.api import exec

        container = await self._container(pod, uid=uid)
        return await exec.run(self.client, self._ref.namespace, pod, container, argv)

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        from cockpit.backends.kuberay.api import exec

        container = await self._container(pod)
        return await exec.attach(
            self.client,
            self._ref.namespace,
            pod,
            container,
            argv,
            tty=tty,
            rows=rows,
            columns=columns,
        )

    async def logs(
        self, pod: str, *, follow: bool, lines: int = 1000, previous: bool = False
    ) -> AsyncIterator[str]:
        """Of the Ray container; of the init container while that is all there is."""
        container = await self._container(pod, for_logs=True)
        request = {"container": container, "tailLines": str(lines)}
        if previous:
            request["previous"] = "true"
        elif follow:
            request["follow"] = "true"
        path = f"{self._pod_path(pod)}/log"
        try:
            async for line in self.client.lines(path, request, idle_s=None if follow else 30.0):
                yield clean(line.decode(errors="replace"))
        except KubeError as error:
            raise _no_log(pod, error, previous=previous) from error

    async def manifest(self, kind: str, name: str) -> str:
        from cockpit.backends.kuberay.resources import describe

        return await describe.manifest(self.client, self._ref, kind, name)

    async def describe(self, kind: str, name: str) -> str:
        from cockpit.backends.kuberay.resources import describe

        return await describe.describe(self.client, self._ref, kind, name)

    async def suspend(self, suspended: bool, *, uid: str = "") -> None:
        async def once() -> None:
            raw = await self._raw()
            if uid:
                precondition.require("RayCluster", self._ref.name, raw, uid)
            change = {"op": "add", "path": "/spec/suspend", "value": suspended}
            await self.client.patch(
                self._path, (precondition.is_of(ray_cluster(raw).uid), change), kind="json"
            )

        await _retried(once)

    async def cordon(self, node: str, cordoned: bool, *, uid: str = "") -> None:
        path = f"/api/v1/nodes/{checked('node', node)}"
        change: dict[str, Any] = {"spec": {"unschedulable": cordoned or None}}
        if uid:  # a patch with another UID than the object's is refused: it is immutable
            change["metadata"] = {"uid": uid}
        try:
            await self.client.patch(path, change, kind="merge")
        except KubeError as error:
            if uid and error.status in (409, 422):
                precondition.require("Node", node, await self.client.get(path), uid)
            if error.status != 404:
                raise
            raise UsageError(
                f"There is no node {one_line(node)!r}.", todo="See: cockpit nodes --kubernetes"
            ) from error

    async def evict_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        precondition.require("Pod", pod, await self._pod(pod), uid)
        request = fault.evict(self.client, self._ref, pod, uid, ceil(grace_s))
        await self._named(pod, precondition.guarded("Pod", pod, request))

    async def isolate(self, pod: str, name: str, *, uid: str) -> None:
        precondition.require("Pod", pod, await self._pod(pod), uid)
        await self._named(pod, fault.isolate(self.client, self._ref, pod, name, uid))

    async def rejoin(self, name: str) -> None:
        await fault.rejoin(self.client, self._ref, name)

    async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
        await lease.hold(self.client, self._ref, holder, ttl_s, expired)

    async def release(self, holder: str) -> None:
        await lease.release(self.client, self._ref, holder)

    async def holder(self) -> str:
        return await lease.holder(self.client, self._ref)

    async def quota_room(self) -> tuple[QuotaRoom, ...]:
        path = f"/api/v1/namespaces/{self._ref.namespace}/resourcequotas"
        raw, listed = await asyncio.gather(self._raw(), self.client.get(path))
        return quota.room(raw, items(listed, "items"))

    async def new_cluster(self, spec: RayJobSpec, *, may_try: bool) -> NewCluster:
        from cockpit.backends.kuberay.provision import new_cluster

        raw = await self._raw()
        return await new_cluster.survey(self.client, self._ref, raw, spec, may_try=may_try)

    async def create_rayjob(self, spec: RayJobSpec) -> str:
        from cockpit.backends.kuberay.resources import rayjob

        return await rayjob.create(self.client, self._ref, await self._raw(), spec)

    async def stop_rayjob(self, name: str, *, uid: str) -> None:
        from cockpit.backends.kuberay.resources import rayjob

        await rayjob.stop(self.client, self._ref, name, uid, self._token_secret)

    async def delete_rayjob(self, name: str, *, uid: str) -> None:
        from cockpit.backends.kuberay.resources import rayjob

        await rayjob.delete(self.client, self._ref, name, uid)

    async def announce(self, change: Change) -> None:
        if self._who is None:
            try:
                self._who = await access.who_am_i(self.client)
            except CockpitError:
                self._who = ""  # an old or strict API server: the Event has no name
        await announce(self.client, self._ref, change, self._who)

    async def dashboard(self) -> DashboardRoute:
        """Return a route that has just responded. Calls at the same time share one search."""
        return await self._route.result()

    async def _find_dashboard(self) -> DashboardRoute:
        # The result of a watch costs no request.
        seen = self._watching.cluster if self._watching is not None else None
        cluster = seen or ray_cluster(await self._raw())
        if cluster.suspended:
            raise UnreachableError(
                f"RayCluster {cluster.name} is suspended, so it has no dashboard.",
                todo="Wake it up with: cockpit unsuspend",
            )
        return await self._dashboards.route(cluster, self._head_pod)

    async def capabilities(self) -> Mapping[str, Capability]:
        return await access.capabilities(self.client, self._ref)

    async def aclose(self) -> None:
        await self._route.aclose()
        await self._dashboards.aclose()
        await self.client.aclose()

    # -- the objects

    @property
    def _path(self) -> str:
        return f"/apis/ray.io/v1/namespaces/{self._ref.namespace}/rayclusters/{self._ref.name}"

    def _pod_path(self, pod: str) -> str:
        return f"/api/v1/namespaces/{self._ref.namespace}/pods/{checked('pod', pod)}"

    async def _raw(self) -> Any:
        return await self._of_cluster(self.client.get(self._path))

    async def _of_cluster(self, request: Awaitable[T]) -> T:
        try:
            return await request
        except KubeError as error:
            if error.status != 404:
                raise
            raise UnreachableError(
                f"There is no RayCluster {self._ref.name} in namespace {self._ref.namespace}.",
                one_line(error.what),
                await where_else(self.client, self._ref.name),
            ) from error

    async def _pods(self, cluster: RayCluster, group: str) -> list[Pod]:
        scale.find(cluster, group)  # a missing group is reported before a label is made of it
        labels = f"{objects.CLUSTER_LABEL}={self._ref.name},{objects.GROUP_LABEL}={group}"
        path = f"/api/v1/namespaces/{self._ref.namespace}/pods"
        found: list[Pod] = []
        async for page in self.client.pages(path, {"labelSelector": labels}):
            found += usable(objects.pod, page.items)
        return [pod for pod in found if pod.phase not in (PodPhase.FAILED, PodPhase.SUCCEEDED)]

    async def _pod(self, name: str) -> Any:
        """The raw pod, which must be one of this cluster."""
        raw = await self._named(name, self.client.get(self._pod_path(name)))
        labels = mapping(mapping(raw, "metadata"), "labels")
        if text(labels, objects.CLUSTER_LABEL) != self._ref.name:
            raise UsageError(
                f"Pod {one_line(name)} is not one of RayCluster {self._ref.name}.",
                todo="See: cockpit pods",
            )
        return raw

    async def _named(self, pod: str, request: Awaitable[T]) -> T:
        try:
            return await request
        except KubeError as error:
            if error.status != 404:
                raise
            raise UsageError(
                f"There is no pod {one_line(pod)!r} in namespace {self._ref.namespace}.",
                todo="See: cockpit pods",
            ) from error

    async def _container(self, pod: str, *, for_logs: bool = False, uid: str = "") -> str:
        """Ray's own, the first; for logs an init container that has not ended well."""
        raw = await self._pod(pod)
        if uid:
            precondition.require("Pod", pod, raw, uid)
        if for_logs:
            for each in items(mapping(raw, "status"), "initContainerStatuses"):
                ended = mapping(mapping(each, "state"), "terminated")
                began = ended or "running" in mapping(each, "state")
                if began and (not ended or whole(ended, "exitCode") != 0):
                    return text(each, "name")
        containers = items(mapping(raw, "spec"), "containers")
        return text(containers[0], "name") if containers else ""

    async def _head_pod(self) -> str:
        path = f"/api/v1/namespaces/{self._ref.namespace}/pods"
        labels = (
            f"{objects.CLUSTER_LABEL}={self._ref.name},{objects.TYPE_LABEL}={NodeType.HEAD.value}"
        )
        answer = await self.client.get(path, {"labelSelector": labels})
        heads = sorted(usable(objects.pod, items(answer, "items")), key=lambda pod: not pod.ready)
        if not heads:
            raise UnreachableError(f"RayCluster {self._ref.name} has no head pod.")
        return heads[0].name

    async def _forget_removed(self, group: str, names: Sequence[str]) -> bool:
        """Once the operator has taken the pods away, take their names out of the object again."""
        patient_until = time.monotonic() + CLEAN_UP_S
        while any([await self._is_staying(name) for name in names]):
            if time.monotonic() > patient_until:
                return False
            await asyncio.sleep(CLEAN_UP_POLL_S)

        async def once() -> None:
            raw = await self._raw()
            patch = scale.forget(ray_cluster(raw), raw, group, names)
            if patch:
                await self.client.patch(self._path, patch, kind="json")

        await _retried(once)
        return True

    async def _is_staying(self, pod: str) -> bool:
        raw = await self.client.find(self._pod_path(pod))
        return raw is not None and "deletionTimestamp" not in mapping(raw, "metadata")


async def _retried(change: Callable[[], Awaitable[T]]) -> T:
    """Retry the change on the current object when it was based on an older one.

    A failed `test` of a JSON patch is 422 Invalid, two concurrent writers are 409 Conflict.
    """
    for _ in range(RETRIES):
        try:
            return await change()
        except KubeError as error:
            last = error
            if error.status != 409 and not (error.status == 422 and _TEST_FAILED in error.what):
                raise
    raise last


def _idle_s(raw: Any) -> int:
    return whole(mapping(mapping(raw, "spec"), "autoscalerOptions"), "idleTimeoutSeconds", 60)


def _no_log(pod: str, error: KubeError, *, previous: bool) -> CockpitError:
    if error.status not in (400, 404):
        return error
    what = f"Pod {one_line(pod)} has no {'previous ' if previous else ''}log."
    return UsageError(what, one_line(error.what), "See: cockpit pods")
