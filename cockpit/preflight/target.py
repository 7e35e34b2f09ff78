"""The pods that a job would use, and their surroundings."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from cockpit.model.cluster import Node, NodeType, Pod, WorkerGroup


class Target(Struct, frozen=True):
    head: Pod | None = None
    workers: tuple[Pod, ...] = ()
    """Those that are ready, in the order of their names."""
    waiting: int = 0
    """Worker pods that are not ready."""
    groups: tuple[WorkerGroup, ...] = ()
    nodes: tuple[Node, ...] | None = None
    """Ray's; None: the dashboard has not reported them."""

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The head first: the driver runs there."""
        return (self.head, *self.workers) if self.head is not None else self.workers

    def node(self, pod: Pod) -> Node | None:
        """The Ray node on the pod."""
        alive = (node for node in self.nodes or () if node.alive)
        return next((node for node in alive if pod.ip and node.ip == pod.ip), None)

    def cpus(self, pod: Pod) -> float:
        """The CPUs that the pod offers to ranks, from Ray's node, or else from its group."""
        return self._resource(pod, "CPU")

    def gpus(self, pod: Pod) -> float:
        return self._resource(pod, "GPU")

    def _resource(self, pod: Pod, name: str) -> float:
        if (node := self.node(pod)) is not None:
            return node.resources.get(name, 0.0)
        group = next((one for one in self.groups if one.name == pod.group), None)
        if group is None or pod.node_type is NodeType.HEAD:
            return 0.0
        return group.resources.cpus if name == "CPU" else group.resources.gpus


def target(
    pods: Iterable[Pod],
    groups: Iterable[WorkerGroup],
    nodes: Iterable[Node] | None = None,
    *,
    only_groups: Collection[str] = (),
) -> Target:
    """The ready pods; with `only_groups`, the head and the workers of these groups."""
    known = sorted(pods, key=lambda pod: pod.name)
    heads = [pod for pod in known if pod.node_type is NodeType.HEAD and pod.ready]
    workers = [
        pod
        for pod in known
        if pod.node_type is NodeType.WORKER and (not only_groups or pod.group in only_groups)
    ]
    ready = tuple(pod for pod in workers if pod.ready)
    return Target(
        max(heads, key=lambda pod: pod.created_s, default=None),
        ready,
        len(workers) - len(ready),
        tuple(one for one in groups if not only_groups or one.name in only_groups),
        None if nodes is None else tuple(nodes),
    )
