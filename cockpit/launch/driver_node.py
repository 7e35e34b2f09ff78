"""A node for drivers, on which a run outlives the head of a cluster with Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cockpit.model.cluster import Node
from cockpit.model.driver import NOTHING_RESERVED, DriverResources
from cockpit.model.run import Job

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
    drivers = Counter(job.driver_node_id for job in jobs if not job.status.is_over)
    for node in nodes:
        places = node.resources.get(RESOURCE, 0.0) if node.alive and not node.is_head else 0.0
        if places - drivers[node.id] >= 1:
            return DriverResources(custom={RESOURCE: 1.0})
    return NOTHING_RESERVED
