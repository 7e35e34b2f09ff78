"""A local cluster as events: its state files, polled a few times a second.

A poll that finds nothing new costs two `stat` calls and one read of /proc.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

from msgspec.structs import replace

from cockpit.backends.local.files import ClusterFiles
from cockpit.backends.local.notices import NoticeReader
from cockpit.backends.local.state import OPERATOR_DEAD, LocalCluster, read_cluster
from cockpit.format import in_seconds
from cockpit.model.cluster import ClusterHealth, ClusterRef
from cockpit.model.error import CockpitError
from cockpit.model.event import ClusterSeen, Event, GroupsListed, PodsListed, SourceHealth

PERIOD_S = 0.15
HEALTH_PERIOD_S = 1.0
"""How often it reports that it is well although nothing changed."""
SILENT_AFTER_S = 10.0
"""The operator touches its file each second; a frozen one does not."""
SOURCE = "backend"
NO_CLUSTER = "there is no such local cluster"


async def watch_cluster(ref: ClusterRef) -> AsyncIterator[Event]:
    """Yield the current state, then each change, until closed.

    A deleted cluster may be created again.
    """
    files = ClusterFiles.of(ref.name)
    notices = NoticeReader(files.events)
    seen: dict[type[Event], object] = {}
    reported_s = 0.0
    health = ""
    while True:
        now = time.time()
        try:
            cluster = read_cluster(ref.name)
            trouble = _trouble(cluster, files, now)
        except CockpitError as error:
            cluster, trouble = None, error.what
        for event in _events(ref, cluster, trouble, now):
            if seen.get(type(event)) != (key := _key(event)):
                seen[type(event)] = key
                yield event
        for notice in notices.read():
            yield notice
        if trouble != health or now - reported_s >= HEALTH_PERIOD_S:
            health, reported_s = trouble, now
            yield SourceHealth(at_s=now, source=SOURCE, ok=not trouble, error=trouble)
        await asyncio.sleep(PERIOD_S)


def _events(
    ref: ClusterRef, cluster: LocalCluster | None, trouble: str, now: float
) -> Iterator[Event]:
    """When what is known is as old as its last change, `at_s` is that; it is still true now."""
    if cluster is None:
        yield ClusterSeen(
            at_s=now, source=SOURCE, ref=ref, health=ClusterHealth.DOWN, message=trouble
        )
        return
    at_s = cluster.status.at_s if cluster.status and cluster.operator_alive else now
    yield ClusterSeen(
        at_s=at_s,
        source=SOURCE,
        ref=ref,
        health=cluster.health,
        message=cluster.message,
        ray_version=cluster.ray_version,
        uid=cluster.spec.uid if cluster.spec else "",
    )
    yield GroupsListed(at_s=at_s, source=SOURCE, groups=cluster.groups)
    yield PodsListed(at_s=at_s, source=SOURCE, pods=cluster.pods)


def _key(event: Event) -> object:
    """The fields whose change makes an event: all except its time."""
    return replace(event, at_s=0.0)


def _trouble(cluster: LocalCluster | None, files: ClusterFiles, now: float) -> str:
    if cluster is None:
        return NO_CLUSTER
    if not cluster.operator_alive:
        return OPERATOR_DEAD
    try:
        stale_s = now - files.status.stat().st_mtime
    except FileNotFoundError:  # it was deleted since it was read
        return NO_CLUSTER
    return (
        f"no data from the operator for {in_seconds(stale_s, 0)}"
        if stale_s > SILENT_AFTER_S
        else ""
    )
