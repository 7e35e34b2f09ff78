"""Pods as rows, each with what its Ray node uses."""

from __future__ import annotations

from cockpit.model.text import one_line
from cockpit.store.select import age_s, current_run, node_of_pod, pods_in_order, ranks_on_pod
from cockpit.store.store import Store
from cockpit.tui import format
from cockpit.tui.sentences import pod_style
from cockpit.tui.widgets.table import Cell, Column, Row

POD_COLUMNS = (
    Column("pod", "POD"),
    Column("group", "GROUP", priority=3),
    Column("phase", "PHASE", width=11),
    Column("ready", "READY", width=5, priority=3),
    Column("ranks", "RANKS", align="right"),
    Column("cpu", "CPU", width=5, align="right"),
    Column("memory", "MEMORY", width=9, align="right", priority=1),
    Column("restarts", "RESTARTS", width=8, align="right", priority=2),
    Column("age", "AGE", width=5, align="right"),
    Column("ip", "IP", priority=4),
    Column("host", "HOST", priority=5),
    Column("reason", "REASON", min_width=17, grow=1),
)


def pod_rows(store: Store, now_s: float) -> list[Row]:
    run = current_run(store)
    rows = []
    for pod in pods_in_order(store):
        node = node_of_pod(store, pod)
        ranks = ranks_on_pod(store, run, pod)
        over = pod.ended_s is not None
        style = "muted" if over else ""
        rows.append(
            Row(
                pod.name,
                (
                    Cell(pod.name, style),
                    Cell(pod.group, "muted"),
                    Cell(pod.phase.value, pod_style(pod)),
                    Cell("yes" if pod.ready else "no", style if pod.ready or over else "warning"),
                    Cell(_few(ranks), style),
                    Cell(format.percent(node.cpu_percent if node and not over else None), style),
                    Cell(
                        format.bytes_text(node.memory_used_bytes if node and not over else None),
                        style,
                    ),
                    Cell(str(pod.restarts), "warning" if pod.restarts else "muted"),
                    Cell(format.age(age_s(pod.created_s or None, now_s)), style),
                    Cell(pod.ip or format.DASH, "muted"),
                    Cell(pod.host or format.DASH, "muted"),
                    Cell(one_line(pod.reason), pod_style(pod) if not pod.ready else "muted"),
                ),
            )
        )
    return rows


def _few(ranks: tuple[int, ...]) -> str:
    """`0,1` or, when they follow one another, `0–7`."""
    if not ranks:
        return format.DASH
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}–{ranks[-1]}"
    return ",".join(map(str, ranks))
