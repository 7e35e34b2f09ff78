"""Kubernetes nodes or hosts, and Ray nodes, as rows, with the pods and ranks that they have."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cockpit import format
from cockpit.insight.nodes.suspects import Suspect
from cockpit.model.cluster import CONNECTING, KubernetesNode, Node, Pod, PodTraffic
from cockpit.model.text import one_line
from cockpit.store.selectors import age_s, current_run, reports_traffic
from cockpit.store.store import Store
from cockpit.tui.views.pods.rows import few
from cockpit.tui.widgets.table.table import Cell, Column, Row

NODE_COLUMNS = (
    Column("node", "NODE", min_width=16, cut="middle"),
    Column("status", "STATUS", width=9),
    Column("pods", "PODS", width=4, align="right"),
    Column("ranks", "RANKS", align="right", priority=1),
    Column("suspect", "SUSPECT", width=7, align="right", priority=1),
    Column("gpus", "GPUS", width=7, align="right"),
    Column("cpus", "CPU", width=5, align="right", priority=2),
    Column("memory", "MEMORY", width=8, align="right", priority=3),
    Column("age", "AGE", width=5, align="right", priority=2),
    Column("type", "TYPE", priority=4),
    Column("ip", "IP", priority=6),
    Column("version", "VERSION", priority=5),
    Column("reason", "REASON", min_width=16, grow=1),
)
RAY_COLUMNS = (
    Column("node", "RAY NODE", min_width=16, cut="middle"),
    Column("ip", "IP", priority=5),
    Column("state", "STATE", width=5),
    Column("ranks", "RANKS", align="right", priority=2),
    Column("cpu", "CPU", width=6, align="right"),
    Column("memory", "MEM", width=5, align="right"),
    Column("store", "STORE", width=5, align="right"),
    Column("disk", "DISK", width=5, align="right"),
    Column("received", "NET IN", width=11, align="right"),
    Column("sent", "NET OUT", width=11, align="right"),
    Column("gpus", "GPU", width=6, align="right", priority=1),
    Column("memory_size", "MEM SIZE", width=9, align="right", priority=3),
    Column("store_size", "STORE SIZE", width=10, align="right", priority=3),
    Column("disk_size", "DISK SIZE", width=9, align="right", priority=3),
    Column("reason", "REASON", min_width=8, grow=1, priority=4),
)
FULL_PERCENT = 90.0
"""From here on a store is marked. Ray refuses to spill to a disk that is 95 % full
(RAY_local_fs_capacity_threshold)."""


class OnNode(Struct, frozen=True):
    """The pods, ranks and GPUs of this cluster on a K8s node."""

    pods: tuple[Pod, ...] = ()
    ranks: tuple[int, ...] = ()

    @property
    def gpus(self) -> float:
        return sum(pod.gpus for pod in self.pods)


def on_nodes(store: Store) -> dict[str, OnNode]:
    """By the node's name, without pods that have ended."""
    run = current_run(store)
    attempt = run.attempt if run else None
    ranks: dict[str, list[int]] = {}
    if attempt is not None and attempt.ended_s is None:
        for placement in attempt.placements:
            ranks.setdefault(placement.node_ip, []).append(placement.rank)
    pods: dict[str, list[Pod]] = {}
    for pod in store.pods.values():
        if pod.host and pod.ended_s is None:
            pods.setdefault(pod.host, []).append(pod)
    return {
        host: OnNode(
            tuple(found),
            tuple(sorted(rank for pod in found if pod.ip for rank in ranks.get(pod.ip, ()))),
        )
        for host, found in pods.items()
    }


def node_rows(
    store: Store, now_s: float, suspected: Mapping[str, Suspect] | None = None
) -> list[Row]:
    """`suspected`: the suspect nodes by name."""
    there, found = on_nodes(store), suspected or {}
    return [
        _row(node, there, now_s, found.get(name))
        for name, node in sorted(store.kubernetes_nodes.items())
    ]


def status(node: KubernetesNode) -> tuple[str, str]:
    """A text and its style."""
    if not node.ready:
        return ("waiting", "muted") if node.reason == CONNECTING else ("not ready", "bad")
    if node.cordoned:
        return "cordoned", "warning"
    return ("pressure", "warning") if node.reason else ("ready", "good")


def _row(
    node: KubernetesNode, there: Mapping[str, OnNode], now_s: float, suspect: Suspect | None
) -> Row:
    here = there.get(node.name, OnNode())
    text, style = status(node)
    gpus = f"{here.gpus:g}/{node.gpus:g}" if node.gpus else format.DASH
    reason = one_line(node.reason)
    if node.cordoned and not node.ready:
        reason = f"cordoned · {reason}"
    if suspect is not None and not reason:
        reason, style = one_line("; ".join(suspect.evidence)), "warning"
    return Row(
        node.name,
        (
            Cell(node.name),
            Cell(text, style),
            Cell(str(len(here.pods)) if here.pods else format.DASH),
            Cell(few(here.ranks)),
            Cell(format.DASH) if suspect is None else Cell(str(suspect.score), "warning"),
            Cell(gpus),
            Cell(f"{node.cpus:g}" if node.cpus else format.DASH),
            Cell(format.bytes_text(node.memory_bytes or None)),
            Cell(format.age(age_s(node.created_s or None, now_s))),
            Cell(one_line(node.type, 30) or format.DASH, "muted"),
            Cell(node.ip or format.DASH, "muted"),
            Cell(node.version or format.DASH, "muted"),
            Cell(reason, style if reason else "muted"),
        ),
    )


def _ended(node: Node, pods: Mapping[str, str]) -> str:
    return "" if node.alive else pods.get(node.ip, "")


def ray_rows(store: Store) -> list[Row]:
    """The head first, then alive before dead. A node is called as its pod, if it has one.

    A dead node may be called as a pod that has ended.
    """
    ended = {pod.ip: pod.name for pod in store.pods.values() if pod.ip}
    living = {pod.ip: pod.name for pod in store.pods.values() if pod.ip and pod.ended_s is None}
    run = current_run(store)
    attempt = run.attempt if run else None
    ranks: dict[str, list[int]] = {}
    for placement in attempt.placements if attempt and attempt.ended_s is None else ():
        ranks.setdefault(placement.node_ip, []).append(placement.rank)
    return [
        _ray_row(
            node,
            living.get(node.ip) or _ended(node, ended) or node.hostname or node.id,
            tuple(ranks.get(node.ip, ())),
            store.pod_traffic.get(living.get(node.ip, "")),
        )
        for node in store.nodes.values()
    ]


def _ray_row(
    node: Node, name: str, ranks: tuple[int, ...], measured: PodTraffic | None = None
) -> Row:
    """`measured`: its pod's traffic, shown with a mark if Ray reports none."""
    others = measured if node.alive and not reports_traffic(node) else None
    mark, of = ("*", others) if others is not None else ("", node)
    reason = node.state_message or ("* measured by the kubelet" if others is not None else "")
    busy = [gpu.utilization_percent for gpu in node.gpus if gpu.utilization_percent is not None]
    return Row(
        node.id,
        (
            Cell(name, "bold" if node.is_head else ""),
            Cell(node.ip or format.DASH, "muted"),
            Cell("alive", "good") if node.alive else Cell("dead", "bad"),
            Cell(few(ranks)),
            Cell(format.percent(node.cpu_percent)),
            _filled(node.memory_used_bytes, node.memory_total_bytes),
            _filled(node.object_store_used_bytes, node.object_store_total_bytes),
            _filled(node.disk_used_bytes, node.disk_total_bytes),
            Cell(_rate(of.received_bytes_per_s, mark)),
            Cell(_rate(of.sent_bytes_per_s, mark)),
            Cell(format.percent(sum(busy) / len(busy) if busy else None)),
            Cell(format.bytes_text(node.memory_total_bytes)),
            Cell(format.bytes_text(node.object_store_total_bytes)),
            Cell(format.bytes_text(node.disk_total_bytes)),
            Cell(reason, "muted"),
        ),
    )


def _filled(used: int | None, total: int | None) -> Cell:
    """Such as `41 %`; with a mark if it is nearly full."""
    if used is None or not total:
        return Cell(format.DASH)
    part = 100 * used / total
    full = part >= FULL_PERCENT
    text = format.percent(part)
    return Cell(f"!{text}" if full else text, "warning" if full else "")


def _rate(bytes_per_s: float | None, mark: str) -> str:
    if bytes_per_s is None:
        return format.DASH
    return f"{mark}{format.bytes_text(int(bytes_per_s))}/s"
