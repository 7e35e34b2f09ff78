"""Deployments of Ray Serve and their replicas as rows. Pure."""

from __future__ import annotations

from cockpit import format
from cockpit.model.serve import Deployment, Replica, ServeLoad
from cockpit.model.text import one_line
from cockpit.store.selectors import age_s
from cockpit.store.store import Store
from cockpit.tui.widgets.table.table import Cell, Column, Row

DEPLOYMENT_COLUMNS = (
    Column("app", "APP", min_width=6, cut="middle"),
    Column("deployment", "DEPLOYMENT", min_width=10, cut="middle"),
    Column("status", "STATUS", width=13),
    Column("replicas", "REPLICAS", width=8, align="right"),
    Column("requests", "REQ/S", width=7, align="right"),
    Column("errors", "ERR/S", width=6, align="right", priority=4),
    Column("p50", "P50", width=8, align="right", priority=3),
    Column("p99", "P99", width=8, align="right"),
    Column("bounds", "MIN-MAX", width=7, align="right", priority=5),
    Column("route", "ROUTE", min_width=6, priority=2, cut="middle"),
    Column("age", "AGE", width=5, align="right", priority=3),
    Column("message", "MESSAGE", min_width=12, grow=1, priority=1),
)
REPLICA_COLUMNS = (
    Column("replica", "REPLICA", min_width=10),
    Column("state", "STATE", width=10),
    Column("node", "NODE", min_width=9),
    Column("pod", "POD", min_width=10, priority=1, cut="middle"),
    Column("pid", "PID", width=8, align="right", priority=2),
    Column("age", "AGE", width=5, align="right"),
    Column("log", "LOG", min_width=12, grow=1, priority=3, cut="middle"),
)
_GOOD, _BAD = ("HEALTHY", "RUNNING"), ("UNHEALTHY", "DEPLOY_FAILED")


def deployment_rows(store: Store, now_s: float) -> list[Row]:
    return [
        _deployment(found, store.serve_loads.get(key), now_s)
        for key, found in store.deployments.items()
    ]


def _deployment(found: Deployment, load: ServeLoad | None, now_s: float) -> Row:
    load = load or ServeLoad(found.app, found.name)
    short = found.running < found.target
    return Row(
        found.key,
        (
            Cell(found.app),
            Cell(found.name, "bold"),
            Cell(found.status, _style(found.status)),
            Cell(f"{found.running}/{found.target}", "warning" if short else ""),
            Cell(format.number(load.requests_per_s, 3)),
            Cell(format.number(load.errors_per_s, 3), "bad" if load.errors_per_s else ""),
            Cell(format.duration(load.p50_s)),
            Cell(format.duration(load.p99_s)),
            Cell(f"{found.bounds[0]}-{found.bounds[1]}" if found.bounds else format.DASH, "muted"),
            Cell(found.route or format.DASH, "muted"),
            Cell(format.age(age_s(found.deployed_s, now_s))),
            Cell(one_line(found.message), _style(found.status) or "muted"),
        ),
    )


def replica_rows(store: Store, key: str | None, now_s: float) -> list[Row]:
    """Those of the deployment with that key."""
    if (found := store.deployments.get(key or "")) is None:
        return []
    pods = {pod.ip: pod.name for pod in store.pods.values() if pod.ip and pod.ended_s is None}
    return [_replica(one, pods.get(one.node_ip, ""), now_s) for one in found.replicas]


def _replica(found: Replica, pod: str, now_s: float) -> Row:
    return Row(
        found.id,
        (
            Cell(found.id),
            Cell(found.state, _style(found.state) or "warning"),
            Cell(found.node_ip or format.DASH),
            Cell(pod or format.DASH, "muted"),
            Cell(str(found.pid or format.DASH), "muted"),
            Cell(format.age(age_s(found.started_s, now_s))),
            Cell(found.log or format.DASH, "muted"),
        ),
    )


def _style(status: str) -> str:
    return "good" if status in _GOOD else "bad" if status in _BAD else "warning"


def why_no_latency(store: Store) -> str:
    """The end of a title: why no request rate and latency are shown; empty if they are."""
    if store.serve_loads or not store.deployments:
        return ""
    source = store.sources.get("prometheus")
    if source is None or source.absent or source.error:
        return " · no request rate and latency without Prometheus"
    return " · Prometheus has no request rate and latency of Serve"
