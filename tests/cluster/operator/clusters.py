"""Reconcile RayClusters: create missing objects, delete superfluous ones, update the status."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from tests.cluster.operator import pod as pods
from tests.cluster.operator import raycluster, template
from tests.cluster.operator.api import Api, ApiError, Object
from tests.cluster.operator.belongings import belongings
from tests.cluster.operator.events import Events
from tests.cluster.operator.group import beyond_help, obituary, plan
from tests.cluster.operator.mirror import Key, Mirror, labelled
from tests.cluster.operator.pod import Pod
from tests.cluster.operator.raycluster import HEAD_GROUP, Cluster, Group
from tests.cluster.operator.status import (
    SUSPENDED,
    SUSPENDING,
    Trouble,
    differs,
    holds,
    status,
)
from tests.cluster.operator.workqueue import Unsettled, WorkQueue

log = logging.getLogger(__name__)

SOON_S = 2.0
"""After a change of status the real operator looks again, so suspend and resume take this long."""
LATER_S = 300.0
ONE_BY_ONE = 20
"""Up to this number pods are created in sequence, as by the real operator; above, `AT_ONCE`."""
AT_ONCE = 8
UNSEEN_S = 30.0
"""A pod that was made and never appeared is given up."""


class StopHere(Exception):
    """The remaining work has to wait; the status is updated nevertheless."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


class Gone(Exception):
    """The cluster is deleted; its watch has not reported it yet."""


class Clusters:
    def __init__(self, api: Api, events: Events, within: str) -> None:
        """`within` is the namespace to look after, or empty for all."""
        self._api = api
        self._events = events
        self.queue = WorkQueue(self._settle)
        self._expected: dict[tuple[Key, str], dict[str, float]] = {}
        self._specs: dict[Key, object] = {}
        self.observers: list[Callable[[Object], None]] = []
        """Called with each RayCluster that was added, changed or deleted."""
        scope = f"/namespaces/{within}" if within else ""
        self.clusters = Mirror(
            api, f"{raycluster.GROUP}{scope}/rayclusters", _as_it_is, self._cluster_changed
        )
        self.pods = Mirror(
            api,
            f"/api/v1{scope}/pods",
            pods.parse,
            self._belonging_changed,
            owner=labelled("ray.io/cluster"),
            selector="ray.io/cluster",
        )
        self.services = Mirror(
            api,
            f"/api/v1{scope}/services",
            _as_it_is,
            self._belonging_changed,
            owner=labelled("ray.io/cluster"),
        )

    def _cluster_changed(self, item: Object) -> None:
        """A new status alone is our own doing, and no reason to look."""
        for observe in self.observers:
            observe(item)
        key, meta = Key.of(item), item["metadata"]
        spec = (meta["uid"], meta.get("generation"), meta.get("labels"), meta.get("annotations"))
        if self.clusters.get(key) is None:
            self._specs.pop(key, None)
        elif self._specs.get(key) == spec:
            return
        else:
            self._specs[key] = spec
        self.queue.add(key)

    def _belonging_changed(self, item: Object) -> None:
        labels = item["metadata"].get("labels", {})
        name = labels.get("ray.io/cluster") or labels.get("ray.io/headless-worker-svc")
        if name:
            self.queue.add(Key(item["metadata"]["namespace"], name))

    async def _settle(self, key: Key) -> float | None:
        item = self.clusters.get(key)
        if item is None:
            for known in [known for known in self._expected if known[0] == key]:
                del self._expected[known]
            return None
        item = {"apiVersion": "ray.io/v1", "kind": "RayCluster", **item}
        try:
            cluster = raycluster.parse(item)
        except (ValueError, KeyError) as error:
            note = f"The RayCluster spec is invalid {key}: {error}"
            self._events.record(item, "InvalidRayClusterSpec", "Validate", note, kind="Warning")
            return None
        if cluster.going:
            return None
        trouble = None
        try:
            await self._belongings(cluster, item)
            await self._pods(cluster, item)
        except Gone:
            return None
        except StopHere as stop:
            trouble = stop.trouble
        except ApiError as error:
            trouble = Trouble(str(error))
        changed = await self._tell(cluster, item, trouble)
        if trouble is not None:
            raise Unsettled(trouble.message)
        return SOON_S if changed else LATER_S

    async def _belongings(self, cluster: Cluster, item: Object) -> None:
        for belonging in belongings(cluster):
            path = f"{belonging.path}/{belonging.name}"
            is_service = belonging.path.endswith("/services")
            if is_service and self.services.get(Key(cluster.namespace, belonging.name)):
                continue
            try:
                if not is_service:
                    await self._api.get(path)
                    continue
            except ApiError as error:
                if error.status != 404:
                    raise
            await self._still_there(cluster)
            try:
                made = await self._api.create(belonging.path, belonging.manifest)
            except ApiError as error:
                if error.status == 409:
                    continue
                raise
            if is_service:
                self.services.learn(made)
            if belonging.event:
                note = f"Created {belonging.said} {cluster.namespace}/{belonging.name}"
                self._events.record(item, belonging.event, "Create", note)

    async def _pods(self, cluster: Cluster, item: Object) -> None:
        if holds(cluster.status, SUSPENDING):
            await self._delete_all(cluster, item)
            return
        if holds(cluster.status, SUSPENDED) or cluster.suspend:
            return
        await self._head(cluster, item)
        for group in cluster.groups:
            await self._group(cluster, group, item)

    async def _delete_all(self, cluster: Cluster, item: Object) -> None:
        for pod in self.pods.of(cluster.key):
            if not pod.going:
                await self._delete(pod)
        note = f"Deleted Pods for RayCluster {cluster.key} due to suspension"
        self._events.record(item, "DeletedPod", "Delete", note)

    async def _head(self, cluster: Cluster, item: Object) -> None:
        if not self._as_expected(cluster, HEAD_GROUP):
            return
        heads = [pod for pod in self.pods.of(cluster.key) if pod.head]
        if not heads:
            await self._still_there(cluster)
            await self._create(cluster, HEAD_GROUP, template.head_pod(cluster), item)
        elif len(heads) > 1:
            names = " ".join(sorted(pod.name for pod in heads))
            raise StopHere(Trouble(f"{len(heads)} head pods found [{names}]"))
        elif beyond_help(heads[0]):
            head = heads[0]
            await self._delete(head)
            self._expect_gone(cluster, HEAD_GROUP, head)
            note = f"Deleted head Pod {cluster.namespace}/{head.name}; {obituary(head)}"
            self._events.record(item, "DeletedHeadPod", "Delete", note)
            raise StopHere(Trouble(f"the head Pod {head.name} is {head.phase}"))

    async def _group(self, cluster: Cluster, group: Group, item: Object) -> None:
        if not self._as_expected(cluster, group.name):
            return
        mine = [
            pod for pod in self.pods.of(cluster.key) if not pod.head and pod.group == group.name
        ]
        decided = plan(cluster, group, mine)
        for deletion in decided.deletions:
            await self._delete(deletion.pod)
            self._expect_gone(cluster, group.name, deletion.pod)
            self._events.record(item, "DeletedWorkerPod", "Delete", deletion.said)
        if decided.unfinished:
            raise StopHere(Trouble(decided.unfinished))
        if decided.creations:
            await self._still_there(cluster)
        at_once = 1 if len(decided.creations) <= ONE_BY_ONE else AT_ONCE
        for first in range(0, len(decided.creations), at_once):
            made = await asyncio.gather(
                *(
                    self._create(
                        cluster,
                        group.name,
                        template.worker_pod(cluster, group, new.index, new.host, new.replica),
                        item,
                    )
                    for new in decided.creations[first : first + at_once]
                ),
                return_exceptions=True,
            )
            for failure in made:
                if failure is not None:
                    raise failure

    async def _create(self, cluster: Cluster, group: str, manifest: Object, item: Object) -> None:
        role = "Head" if group == HEAD_GROUP else "Worker"
        try:
            made = await self._api.create(f"/api/v1/namespaces/{cluster.namespace}/pods", manifest)
        except ApiError as error:
            what = f"{role.lower()} Pod"
            note = f"Failed to create {what} {cluster.key}, {error}"
            self._events.record(item, f"FailedToCreate{role}Pod", "Create", note, kind="Warning")
            raise StopHere(Trouble(str(error), f"FailedCreate{role}Pod")) from error
        name = made["metadata"]["name"]
        self._expected.setdefault((cluster.key, group), {})[name] = time.monotonic() + UNSEEN_S
        note = f"Created {role.lower()} Pod {cluster.namespace}/{name}"
        self._events.record(item, f"Created{role}Pod", "Create", note)

    async def _still_there(self, cluster: Cluster) -> None:
        """Dependents of a deleted cluster are deleted at once, and must not be created again."""
        try:
            meta = (await self._api.get(cluster.path))["metadata"]
        except ApiError as error:
            if error.status == 404:
                raise Gone from error
            raise
        if meta["uid"] != cluster.uid or "deletionTimestamp" in meta:
            raise Gone

    async def _delete(self, pod: Pod) -> None:
        try:
            await self._api.delete(pod.path)
        except ApiError as error:
            if error.status != 404:
                role = "Head" if pod.head else "Worker"
                raise StopHere(Trouble(str(error), f"FailedDelete{role}Pod")) from error

    def _expect_gone(self, cluster: Cluster, group: str, pod: Pod) -> None:
        self._expected.setdefault((cluster.key, group), {})[pod.name] = 0.0

    def _as_expected(self, cluster: Cluster, group: str) -> bool:
        """Whether every created pod was observed since, and every deleted one is absent.

        Until then the group is skipped, or pods would be created or deleted twice.
        """
        expected = self._expected.get((cluster.key, group), {})
        for name, given_up in list(expected.items()):
            seen = self.pods.get(Key(cluster.namespace, name)) is not None
            if seen == bool(given_up) or (given_up and time.monotonic() > given_up):
                del expected[name]
        return not expected

    async def _tell(self, cluster: Cluster, item: Object, trouble: Trouble | None) -> bool:
        """Whether there was something new to report."""
        service = self.services.get(Key(cluster.namespace, cluster.head_service))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        after = status(cluster, self.pods.of(cluster.key), service, trouble, now)
        if not differs(cluster.status, after):
            return False
        try:
            reported = await self._api.replace(f"{cluster.path}/status", {**item, "status": after})
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        self.clusters.learn(reported)
        return True


def _as_it_is(item: Object) -> Object:
    return item
