"""Which of DCGM's GPUs each rank uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cockpit.model.cluster import Node, Pod
from cockpit.model.run import Placement
from cockpit.model.tracking import GpuActivity
from training.telemetry.metric_table import ACTIVITY


def of_placement(
    placed: Placement,
    gpus: Sequence[GpuActivity],
    pods: Sequence[Pod],
    nodes: Sequence[Node],
    namespace: str = "",
) -> GpuActivity | None:
    """Return the activity of the rank's GPUs, or None if DCGM has none of them.

    On Kubernetes, a container numbers its own GPUs from 0, in the order of the node's indices: the
    pod's label selects the GPUs, and Ray's id counts among them. Elsewhere Ray's id is the node's
    index, and the GPU is selected by host name or address. A node of `gpus` may be a host name, an
    address, or a Kubernetes node.
    """
    pod = next((pod for pod in pods if pod.ip and pod.ip == placed.node_ip), None)
    mine = [
        gpu
        for gpu in gpus
        if pod is not None and gpu.pod == pod.name and gpu.namespace in ("", namespace)
    ]
    if mine:
        used = [
            gpu
            for number, gpu in enumerate(mine)
            if number in placed.gpu_ids or gpu.uuid in placed.gpu_uuids
        ]
        # The only GPU of a pod is the one meant: its number may be that of the node.
        return _together(used or (mine if len(mine) == 1 and placed.gpus else []))
    places = {placed.node_ip, pod.host if pod is not None else ""}
    places |= {node.hostname for node in nodes if node.ip == placed.node_ip}
    places.discard("")
    names = set(placed.gpus)
    return _together(
        [gpu for gpu in gpus if {gpu.gpu, gpu.uuid} & names and places & {gpu.node, gpu.address}]
    )


def _together(gpus: Sequence[GpuActivity]) -> GpuActivity | None:
    """Of several GPUs of one rank: the means of the shares, and the sums of the rates."""
    if len(gpus) < 2:
        return gpus[0] if gpus else None
    numbers: dict[str, Any] = {}
    for name, metric in ACTIVITY.items():
        values = [value for gpu in gpus if (value := getattr(gpu, name)) is not None]
        if values:
            numbers[name] = sum(values) / (1 if metric.total else len(values))
    first = gpus[0]
    return GpuActivity(
        node=first.node,
        gpu=",".join(gpu.gpu for gpu in gpus),
        xid=next((gpu.xid for gpu in gpus if gpu.xid is not None), None),
        pod=first.pod,
        namespace=first.namespace,
        address=first.address,
        **numbers,
    )
