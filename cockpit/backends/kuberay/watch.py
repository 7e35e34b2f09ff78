"""One RayCluster as events: its object, pods, nodes, RayJobs and Kubernetes Events, watched.

One watch a kind. Their objects are collected and emitted at most ten times a second, however
fast pods change.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.fields import is_label, mapping, text
from cockpit.backends.kuberay.api.reflector import Health, Reflector, Snapshot
from cockpit.backends.kuberay.resources import objects
from cockpit.backends.kuberay.resources.crash_log import CrashLogs, explained
from cockpit.backends.kuberay.resources.health import health, health_alone
from cockpit.backends.kuberay.resources.raycluster import RayCluster, ray_cluster
from cockpit.backends.kuberay.waiting.waits import Waits
from cockpit.model.clock import server_time
from cockpit.model.cluster import ClusterHealth, ClusterRef, KubernetesNode, Pod
from cockpit.model.event import (
    ClusterSeen,
    Event,
    GroupsListed,
    JobsListed,
    KubernetesNodesListed,
    Notice,
    PodsListed,
    SourceHealth,
)
from cockpit.model.run import Job
from cockpit.model.text import one_line

SOURCE = "backend"
KINDS = ("cluster", "pods", "events", "rayjobs", "nodes", "queues")
BEAT_S = 2.0
"""How often it reports that it is well: screens grey a source after 5 s without an event."""
NOTICES_AT_FIRST = 200
_POD = re.compile(r"(.+)-[a-z0-9]{5}")
"""The name of a pod without its cluster's: what it is, and five letters that Kubernetes gives."""
PATTERN_LABEL = "cockpit/pattern"
"""On the cluster of a RayJob: the cluster that it was copied from."""


class _Kind(Struct):
    """The objects of one kind that the watch has delivered."""

    objects: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = False
    news: bool = False
    health: Health | None = None
    health_news: bool = False

    @property
    def reported(self) -> bool:
        return self.complete or self.health is not None


class ClusterWatch:
    """`events` may be called once. `cluster` and `pods` are the known state.

    `events` ends when a RayJob that had created the cluster continues on a new one: a retry, or
    after a suspension. `next_cluster` is then the name of that cluster.
    """

    def __init__(self, client: KubeClient, ref: ClusterRef, kinds: Collection[str] = KINDS) -> None:
        self._client, self._ref = client, ref
        self._kinds = {name: _Kind() for name in KINDS if name in kinds and name != "queues"}
        self._waits = Waits(client, ref, self._on_waits) if "queues" in kinds else None
        self._woken = asyncio.Event()
        self._sent: dict[type[Event], object] = {}
        self._reported_notices: dict[str, Notice] = {}
        self._seen_pods: set[str] = set()
        self._pods: Collection[Pod] = ()
        self._crash_logs = CrashLogs(client, ref.namespace, self._on_crash_log)
        self._was_there = False
        self._deleted_s: float | None = None
        self._rayjobs: set[str] = set()
        """The UIDs of the RayJobs that have run on this cluster."""
        self.next_cluster = ""
        self._failed_once: set[str] = set()

    @property
    def cluster(self) -> RayCluster | None:
        found = self._kinds["cluster"].objects if "cluster" in self._kinds else {}
        return next(iter(found.values()), None)

    @property
    def pods(self) -> Collection[Pod]:
        """With the reasons that events and nodes add."""
        return self._pods

    async def events(self) -> AsyncGenerator[Event, None]:
        tasks = [
            asyncio.create_task(self._follow(name, kind)) for name, kind in self._kinds.items()
        ]
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                for event in self._compose():
                    yield event
                if (job := self._continued()) is not None:
                    self.next_cluster = job.cluster
                    yield _continues(job)
                    return
                for task in tasks:
                    if task.done():
                        task.result()  # a bug in cockpit: report it
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._crash_logs.aclose()
            if self._waits is not None:
                await self._waits.aclose()

    def _on_waits(self) -> None:
        """Handle a change in the queues, or of a volume claim."""
        for kind in self._kinds.values():
            kind.news = kind.news or kind.complete
        self._woken.set()

    def _on_crash_log(self) -> None:
        """Handle a pod's crash log that has arrived."""
        self._kinds["pods"].news = True
        self._woken.set()

    async def _follow(self, name: str, kind: _Kind) -> None:
        path, params, parse = self._what(name)
        reflector = Reflector(self._client, path, parse, params=params, beat_s=BEAT_S)
        async for update in reflector.updates():
            match update:
                case Snapshot(objects=found, complete=complete):
                    kind.objects, kind.complete, kind.news = found, complete, True
                case Health():
                    kind.health, kind.health_news = update, True
            self._woken.set()

    def _what(self, name: str) -> tuple[str, dict[str, str], Callable[[Any], Any]]:
        """Path, selectors and reader of a kind."""
        namespace, cluster = self._ref.namespace, self._ref.name
        ray, core = f"/apis/ray.io/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}"
        match name:
            case "cluster":
                only = {"fieldSelector": f"metadata.name={cluster}"}
                return f"{ray}/rayclusters", only, ray_cluster
            case "pods":
                mine = {"labelSelector": f"{objects.CLUSTER_LABEL}={cluster}"}
                return f"{core}/pods", mine, objects.pod
            case "events":
                return f"{core}/events", {}, self._notice
            case "rayjobs":
                return f"{ray}/rayjobs", {}, self._rayjob
            case _:
                return "/api/v1/nodes", {}, objects.kubernetes_node

    def _rayjob(self, raw: Any) -> Job | None:
        job = objects.ray_job(raw)
        if job.cluster == self._ref.name:
            self._rayjobs.add(job.rayjob_uid)
        return job if job.rayjob_uid in self._rayjobs else rayjob_of(raw, self._ref)

    def _continued(self) -> Job | None:
        """The RayJob whose cluster this was, once this one is deleted and it has a new one."""
        jobs = self._kinds.get("rayjobs")
        if jobs is None or self._deleted_s is None:
            return None
        of_this = (job for job in jobs.objects.values() if job.rayjob_uid in self._rayjobs)
        return next(
            (j for j in of_this if j.cluster != self._ref.name and is_label(j.cluster)), None
        )

    def _notice(self, raw: Any) -> Notice | None:
        """Pods that may belong to this cluster; `_is_ours` decides later."""
        about = mapping(raw, "involvedObject")
        stem = self._ref.name[:40]  # long names are cut in the names of pods
        if text(about, "kind") == "RayJob" or text(about, "name").startswith(stem):
            return objects.notice(raw, SOURCE)
        return None

    def _is_ours(self, notice: Notice) -> bool:
        """Exclude pods of a cluster with our name as a prefix: `demo-2-head-x1y2z` is not `demo`'s.

        A pod that was deleted before is known only by its name.
        """
        if notice.kind == "Cluster":
            return notice.name == self._ref.name
        if notice.kind == "Job":
            jobs = self._kinds.get("rayjobs")
            return jobs is not None and any(
                job.rayjob == notice.name for job in jobs.objects.values()
            )
        if notice.kind != "Pod" or notice.name in self._seen_pods:
            return notice.kind == "Pod"
        made = _POD.fullmatch(notice.name.removeprefix(f"{self._ref.name}-"))
        groups = self.cluster.groups if self.cluster is not None else ()
        return made is not None and made[1] in ("head", *(f"{each.name}-worker" for each in groups))

    # -- events

    def _compose(self) -> Iterator[Event]:
        now = server_time()
        cluster, pods = self._kinds.get("cluster"), self._kinds.get("pods")
        # The cluster is first, but after the first of its pods: it contains their counts.
        if cluster is not None and not cluster.reported:
            return
        if pods is not None and not (pods.objects or pods.reported):
            return
        if cluster is None or cluster.complete:
            yield from self._cluster_events(now)
        yield from self._other_events(now)
        yield from self._health_events(now)

    def _cluster_events(self, now: float) -> Iterator[Event]:
        kind, pods = self._kinds.get("cluster"), self._kinds.get("pods")
        if not any(each.news for each in self._kinds.values()):
            return
        by_kind = {name: each.objects.values() for name, each in self._kinds.items()}
        found = explained(
            by_kind.get("pods", ()), by_kind.get("events", ()), by_kind.get("nodes", ())
        )
        self._pods = self._crash_logs.of(found)
        cluster = self.cluster
        if self._waits is not None:
            self._pods = self._waits.of(cluster, self._pods, by_kind.get("rayjobs", ()))
        if kind is not None:
            kind.news = False
            yield from self._seen(now, cluster)
            groups = objects.worker_groups(cluster, self.pods) if cluster else ()
            if self._waits is not None:
                groups = self._waits.of_groups(groups)
            yield from self._if_new(GroupsListed(at_s=now, source=SOURCE, groups=groups))
        if pods is not None and (pods.objects or pods.complete):
            pods.news = False
            listed = tuple(objects.pods_in_order(self._pods))
            self._seen_pods |= {pod.name for pod in listed}
            yield from self._if_new(
                PodsListed(at_s=now, source=SOURCE, pods=listed, more=not pods.complete)
            )

    def _seen(self, now: float, cluster: RayCluster | None) -> Iterator[Event]:
        pods = self._kinds.get("pods")
        if cluster is None:
            if self._was_there and self._deleted_s is None:
                self._deleted_s = now
            message, state = self._missing_message(), ClusterHealth.DOWN
        else:
            self._was_there, self._deleted_s = True, None
            whole = pods is not None and pods.complete
            state, message = health(cluster, self.pods) if whole else health_alone(cluster)
            if self._waits is not None and state is ClusterHealth.SUSPENDED:
                message = self._waits.of_cluster or message
        yield from self._if_new(
            ClusterSeen(
                at_s=now,
                source=SOURCE,
                ref=self._ref,
                health=state,
                message=message,
                ray_version=cluster.ray_version if cluster else "",
                uid=cluster.uid if cluster else "",
                queue=cluster.queue if cluster else "",
            )
        )

    def _missing_message(self) -> str:
        where = f"RayCluster {self._ref.name} in namespace {self._ref.namespace}"
        if self._deleted_s is None:
            return f"there is no {where}"
        at = time.strftime("%H:%M:%S", time.localtime(self._deleted_s))
        return f"{where} was deleted at {at}"

    def _other_events(self, now: float) -> Iterator[Event]:
        nodes, jobs = self._kinds.get("nodes"), self._kinds.get("rayjobs")
        if nodes is not None and nodes.news and nodes.complete:
            nodes.news = False
            found: Collection[KubernetesNode] = nodes.objects.values()
            listed = tuple(sorted(found, key=lambda each: each.name))
            yield from self._if_new(KubernetesNodesListed(at_s=now, source=SOURCE, nodes=listed))
        if jobs is not None and jobs.news and jobs.complete:
            jobs.news = False
            found_jobs: Collection[Job] = jobs.objects.values()
            newest = tuple(sorted(found_jobs, key=lambda job: -(job.started_s or 0.0)))
            if self._waits is not None:
                newest = self._waits.of_jobs(newest)
            yield from self._if_new(JobsListed(at_s=now, source=SOURCE, jobs=newest))
        yield from self._notices()
        if self._waits is not None and (listed_queues := self._waits.event(now)) is not None:
            yield from self._if_new(listed_queues)

    def _notices(self) -> Iterator[Event]:
        events = self._kinds.get("events")
        if events is None or not events.news or not events.complete:
            return
        events.news = False
        before = self._reported_notices
        ours = {key: each for key, each in events.objects.items() if self._is_ours(each)}
        new = [(key, each) for key, each in ours.items() if before.get(key) != each]
        new.sort(key=lambda item: item[1].at_s)
        if not before:
            new = new[-NOTICES_AT_FIRST:]
        self._reported_notices = ours
        for _, notice in new:
            yield notice

    def _health_events(self, now: float) -> Iterator[Event]:
        """`backend` is the cluster; each other kind is a separate source once it has failed.

        It then continues to report OK: a source without reports becomes stale.
        """
        if not all(kind.reported for kind in self._kinds.values()):
            return
        for name, kind in self._kinds.items():
            if not kind.health_news or kind.health is None:
                continue
            kind.health_news = False
            source = SOURCE if name == "cluster" else f"{SOURCE}:{name}"
            if (
                name == "cluster"
                and kind.health.ok
                and self.cluster is None
                and self._deleted_s is None
            ):
                yield SourceHealth(at_s=now, source=SOURCE, ok=False, error=self._missing_message())
            elif name == "cluster" or not kind.health.ok or source in self._failed_once:
                self._failed_once.add(source)
                yield _source_health(now, source, kind.health)

    def _if_new(self, event: Event) -> Iterator[Event]:
        """Not what was emitted before; a time alone is no news."""
        key = replace(event, at_s=0.0)
        if self._sent.get(type(event)) != key:
            self._sent[type(event)] = key
            yield event


def _continues(job: Job) -> Notice:
    return Notice(
        at_s=server_time(),
        source=SOURCE,
        kind="Job",
        name=job.rayjob,
        reason="NewCluster",
        message=" ".join(filter(None, (job.tries, f"continues on RayCluster {job.cluster}"))),
        warning=False,
    )


def _source_health(now: float, source: str, health: Health) -> SourceHealth:
    error = health.error
    message = "" if error is None else one_line(error.why or error.what)
    if health.missing:
        message = "KubeRay is not installed: its kinds are not known to the API server"
    return SourceHealth(
        at_s=now, source=source, ok=health.ok, error=message, retry_at_s=health.retry_at_s
    )


def rayjob_of(raw: Any, ref: ClusterRef) -> Job | None:
    """The job of a RayJob that is this cluster's; None for one of another."""
    job = objects.ray_job(raw)
    pattern = text(mapping(mapping(raw, "metadata"), "labels"), PATTERN_LABEL)
    return job if ref.name in (job.cluster, pattern) else None
