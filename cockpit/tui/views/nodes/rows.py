"""Kubernetes nodes as rows, each with the pods and ranks of this cluster on it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cockpit import format
from cockpit.insight.nodes.suspects import Suspect
from cockpit.model.cluster import KubernetesNode, Pod
from cockpit.model.text import one_line
from cockpit.store.selectors import age_s, current_run
from cockpit.store.store import Store
from cockpit.tui.views.pods.rows import few
from cockpit.tui.widgets.table.table import Cell, Column, Row

NODE_COLUMNS = (
    Column("node", "K8S NODE", min_width=16, cut="middle"),
    Column("status", "STATUS", width=9),
    Column("pods", "PODS", width=4, align="right"),
    Column("ranks", "RANKS", align="right", priority=1),
    Column("suspect", "SUSPECT", width=7, align="right", priority=1),
    Column("gpus", "GPUS", width=7, align="right"),
    Column("cpus", "CPU", width=5, align="right", priority=2),
    Column("memory", "MEMORY", width=8, align="right", priority=3),
    Column("age", "AGE", width=5, align="right", priority=2),
    Column("ip", "IP", priority=6),
    Column("version", "KUBELET", priority=5),
    Column("reason", "REASON", min_width=16, grow=1),
)


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
        return "not ready", "bad"
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
            Cell(node.ip or format.DASH, "muted"),
            Cell(node.version or format.DASH, "muted"),
            Cell(reason, style if reason else "muted"),
        ),
    )
