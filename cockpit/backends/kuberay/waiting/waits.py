"""What one cluster, its RayJobs and its pods wait for, as the cluster's watch shows it.

The queues are watched from the first time that something waits: a cluster whose pods are all ready
costs no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.resources.raycluster import RayCluster
from cockpit.backends.kuberay.waiting.watch import Claims, Queues, QueueWatch
from cockpit.model.cluster import ClusterRef, Pod, PodPhase, WorkerGroup
from cockpit.model.event import QueuesListed
from cockpit.model.run import Job
from cockpit.model.waiting import ClaimState, QueueEntry, WaitStage

SOURCE = "backend"
_UNSCHEDULED = (WaitStage.QUEUE, WaitStage.NODE_ROOM)


class Waits:
    """`on_change` is called when the queues or a claim have changed: call `of` again."""

    def __init__(self, client: KubeClient, ref: ClusterRef, on_change: Callable[[], None]) -> None:
        self._client, self._ref, self._on_change = client, ref, on_change
        self._queues: Queues | None = None
        self._watching: asyncio.Task[None] | None = None
        self._claims = Claims(client, ref.namespace, on_change)
        self._ours: dict[tuple[str, str], QueueEntry] = {}
        self._claimed: tuple[ClaimState, ...] = ()

    def of(
        self, cluster: RayCluster | None, pods: Collection[Pod], jobs: Iterable[Job]
    ) -> list[Pod]:
        """Take the state of the cluster. Return the pods, with what they wait for in a queue."""
        jobs = list(jobs)
        if self._watching is None and _is_waiting(cluster, pods, jobs):
            self._watching = asyncio.create_task(self._watch())
        elif self._watching is not None and self._watching.done():
            self._watching.result()  # a bug in cockpit: report it
        self._claimed = self._claims.of(claim for pod in pods for claim in pod.claims)
        found = self._queues.entries if self._queues is not None else ()
        if not found:
            self._ours = {}
            return list(pods)
        names = {("RayCluster", self._ref.name)}
        names |= {("RayJob", job.rayjob) for job in jobs} | {("Pod", pod.name) for pod in pods}
        self._ours = {
            (entry.owner_kind, entry.owner): entry
            for entry in found
            if (entry.owner_kind, entry.owner) in names
        }
        return [self._with_queue(pod) for pod in pods]

    @property
    def of_cluster(self) -> str:
        """What the cluster waits for in its queue; empty if it is in none, or admitted."""
        entry = self._ours.get(("RayCluster", self._ref.name))
        return entry.summary if entry is not None else ""

    def of_groups(self, groups: Iterable[WorkerGroup]) -> tuple[WorkerGroup, ...]:
        """Add to their notes what the cluster waits for in its queue."""
        why = self.of_cluster
        return tuple(
            replace(group, note="; ".join(part for part in (why, group.note) if part))
            for group in groups
        )

    def of_jobs(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        """Each RayJob that waits in a queue with the reason as its message."""
        return tuple(self._job(job) for job in jobs)

    def event(self, now_s: float) -> QueuesListed | None:
        """None before the queues are known."""
        if self._queues is None:
            return None
        return QueuesListed(
            at_s=now_s,
            source=SOURCE,
            entries=tuple(self._ours.values()),
            claims=self._claimed,
            missing=self._queues.missing,
        )

    async def aclose(self) -> None:
        await self._claims.aclose()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        await QueueWatch(self._client, self._ref, self._on_queues).run()

    def _on_queues(self, queues: Queues) -> None:
        if queues != self._queues:
            self._queues = queues
            self._on_change()

    def _with_queue(self, pod: Pod) -> Pod:
        if pod.phase is not PodPhase.PENDING or pod.stage not in _UNSCHEDULED:
            return pod
        entry = self._ours.get(("Pod", pod.name))
        entry = entry or self._ours.get(("RayCluster", self._ref.name))
        return replace(pod, reason=entry.summary) if entry is not None and entry.summary else pod

    def _job(self, job: Job) -> Job:
        entry = self._ours.get(("RayJob", job.rayjob))
        if entry is None or job.status.is_over or job.submitted or not entry.summary:
            return job
        return replace(job, message=entry.summary)


def _is_waiting(cluster: RayCluster | None, pods: Collection[Pod], jobs: Collection[Job]) -> bool:
    if cluster is not None:
        wanted = 1 + sum(group.wanted * group.hosts for group in cluster.groups)
        if cluster.suspended or len(pods) < wanted:
            return True
    living = [pod for pod in pods if pod.ended_s is None]
    return any(not pod.ready for pod in living) or any(
        not job.status.is_over and not job.submitted for job in jobs
    )
