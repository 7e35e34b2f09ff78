"""Ray's nodes as the controller sees them, and the nodes of a run that have died."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import ray

from training.jobs.placement import per_node

ANSWER_S = 2.0
"""How long a raylet may take to respond."""
_PROBES = 32


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    address: str
    port: int
    """The port of the raylet."""
    resources: Mapping[str, float]
    """All that it has, unless it is one of `available`."""

    def room(self, resources: Mapping[str, float]) -> int:
        """How many ranks with these resources fit into its resources."""
        wanted = {name: amount for name, amount in resources.items() if amount > 0}
        return per_node(wanted, self.resources, strict_spread=False)


def alive() -> list[Node]:
    """According to the GCS, which still lists a node that has just died."""
    return [
        Node(
            str(raw["NodeID"]),
            str(raw["NodeManagerAddress"]),
            int(raw["NodeManagerPort"]),
            raw["Resources"],
        )
        for raw in ray.nodes()
        if raw["Alive"]
    ]


def available() -> list[Node]:
    """As `alive`, with the resources that no rank, task or actor holds at the moment."""
    left = ray._private.state.available_resources_per_node()
    return [replace(node, resources=left[node.id]) for node in alive() if node.id in left]


def dying(ids: Collection[str]) -> set[str]:
    """The nodes that the GCS considers alive although they are draining or do not respond."""
    draining = set(ray._private.state.state.get_draining_nodes())
    nodes = [node for node in alive() if node.id in ids]
    with ThreadPoolExecutor(_PROBES, thread_name_prefix="probe") as probes:
        answers = list(probes.map(_answers, nodes))
    stale = {node.id for node, answer in zip(nodes, answers, strict=True) if not answer}
    return stale | {node.id for node in nodes if node.id in draining}


def _answers(node: Node) -> bool:
    try:
        socket.create_connection((node.address, node.port), timeout=ANSWER_S).close()
    except OSError:
        return False
    return True
