"""A node for drivers, on which a run outlives the head of a cluster with Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cockpit.model.cluster import Node
from cockpit.model.driver import NOTHING_RESERVED, DriverResources
from cockpit.model.run import Job, JobStatus

RESOURCE = "driver"
"""The custom resource of such a node: how many drivers it takes. The component `driver` sets it."""
TEXT = (
    f"The driver runs on a node with the resource {RESOURCE!r}, not on the head. "
    "To run it on the head: --driver-cpus 0"
)


def reservation(nodes: Iterable[Node], jobs: Iterable[Job]) -> DriverResources:
    """One place on such a node; nothing if there is none, or if drivers have taken all places.

    A driver that waited for a place would be worse off than one on the head.
    """
    unfinished = [job for job in jobs if not job.status.is_over]
    drivers = Counter(job.driver_node_id for job in unfinished)
    free = 0
    for node in nodes:
        if node.alive and not node.is_head:
            free += max(0, int(node.resources.get(RESOURCE, 0.0)) - drivers[node.id])
    # Ray has not placed the driver of a pending job yet: it may get any of the places.
    pending = sum(job.status is JobStatus.PENDING for job in unfinished if not job.driver_node_id)
    return DriverResources(custom={RESOURCE: 1.0}) if free > pending else NOTHING_RESERVED
