"""All clusters of all contexts as rows, and a row for each context that does not answer."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from cockpit import format
from cockpit.format import plural
from cockpit.model.cluster import ClusterHealth, ClusterRef, ClusterSummary
from cockpit.model.text import one_line
from cockpit.store.selectors import age_s
from cockpit.store.store import SourceState, Store
from cockpit.tui.rows.text import HEALTH_STYLES
from cockpit.tui.widgets.table.table import Cell, Column, Row

FLEET_COLUMNS = (
    Column("here", "", width=2),
    Column("context", "CONTEXT", min_width=10, cut="middle"),
    Column("namespace", "NAMESPACE", min_width=9, cut="middle"),
    Column("cluster", "CLUSTER", min_width=10, cut="middle"),
    Column("health", "HEALTH", width=10),
    Column("workers", "WORKERS", width=7, align="right"),
    Column("groups", "GROUPS", width=6, align="right", priority=4),
    Column("gpus", "GPUS", width=5, align="right", priority=1),
    Column("ray", "RAY", priority=5),
    Column("age", "AGE", width=5, align="right", priority=2),
    Column("autoscaler", "AUTOSCALER", width=10, priority=6),
    Column("message", "MESSAGE", min_width=16, grow=1, priority=3),
)
SOURCE = "context:"


class FleetRow(Struct, frozen=True):
    """A row with its cluster; None for a context."""

    row: Row
    ref: ClusterRef | None


def contexts(fleet: Store) -> list[str]:
    """Every known context."""
    sources = [name.removeprefix(SOURCE) for name in fleet.sources if name.startswith(SOURCE)]
    return sorted({*fleet.fleet, *sources})


def clusters(fleet: Store | None) -> list[ClusterRef]:
    """All clusters, by context."""
    if fleet is None:
        return []
    return [
        found.ref
        for context in contexts(fleet)
        for found in sorted(fleet.fleet.get(context, ()), key=_place)
    ]


def fleet_rows(
    fleet: Store,
    now_s: float,
    here: ClusterRef | None,
    favorites: Collection[ClusterRef] = (),
) -> list[FleetRow]:
    """`here` is the current cluster; favorites are first."""
    rows: list[FleetRow] = []
    for context in contexts(fleet):
        source = fleet.sources.get(SOURCE + context)
        lost = source is not None and not source.ok
        if source is not None and (lost or source.absent or context not in fleet.fleet):
            rows.append(_context_row(context, source, now_s))
        elif not fleet.fleet.get(context):
            rows.append(_empty_row(context, "no RayCluster"))
        for found in sorted(fleet.fleet.get(context, ()), key=_place):
            is_favorite = found.ref in favorites
            mark = f"{'●' if found.ref == here else ' '}{'★' if is_favorite else ''}".rstrip()
            rows.append(_cluster_row(found, now_s, mark, lost=lost))
    rows.sort(key=lambda row: row.ref not in favorites)
    return rows


def totals(fleet: Store, width: int) -> str:
    """A summary of the fleet in one line, with as many of its parts as fit into `width` cells."""
    names = contexts(fleet)
    found = [summary for name in names for summary in fleet.fleet.get(name, ())]
    lost = sum(not state.ok for state in fleet.sources.values() if state.name.startswith(SOURCE))
    parts = [f"{plural(len(found), 'cluster')} in {plural(len(names), 'context')}"]
    if lost:
        parts.append(f"{lost:,} without an answer")
    parts.append(
        f"{sum(c.ready for c in found):,} of {sum(c.desired for c in found):,} workers ready"
    )
    if gpus := sum(c.gpus for c in found):
        parts.append(f"{gpus:,g} GPUs")
    while len(parts) > 1 and len(" · ".join(parts)) > width:
        parts.pop()
    return " · ".join(parts)


def _cluster_row(found: ClusterSummary, now_s: float, mark: str, *, lost: bool) -> FleetRow:
    style = "muted" if lost else ""
    short = found.ready < found.desired
    workers = "warning" if short and found.health is not ClusterHealth.SUSPENDED else style
    cells = (
        Cell(mark, "accent"),
        Cell(found.ref.context, "muted"),
        Cell(found.ref.namespace, style),
        Cell(found.ref.name, style or "bold"),
        Cell(found.health.value, style or HEALTH_STYLES[found.health]),
        Cell(f"{found.ready:,}/{found.desired:,}", style or workers),
        Cell(str(found.groups), style),
        Cell(f"{found.gpus:g}" if found.gpus else format.DASH, style),
        Cell(found.ray_version or format.DASH, "muted"),
        Cell(format.age(age_s(found.created_s or None, now_s)), style),
        Cell("on" if found.autoscaled else format.DASH, style),
        Cell(one_line(found.message), "muted"),
    )
    return FleetRow(Row(str(found.ref), cells), found.ref)


def _context_row(context: str, source: SourceState, now_s: float) -> FleetRow:
    """A context that does not answer, why, and how old the last answer is."""
    if source.ok:
        return _empty_row(context, "no RayCluster" if not source.absent else "no RayClusters here")
    why = one_line(source.error, 160) or "no answer"
    age = age_s(source.ok_s, now_s)
    age_text = f"last update {format.age(age)} ago · " if age is not None else ""
    return _blank(context, Cell("no answer", "bad"), Cell(f"{age_text}{why}", "warning"), "lost")


def _empty_row(context: str, what: str) -> FleetRow:
    return _blank(context, Cell(format.DASH, "muted"), Cell(what, "muted"), "empty")


def _blank(context: str, health: Cell, message: Cell, kind: str) -> FleetRow:
    dash = Cell(format.DASH, "muted")
    cells = (Cell(""), Cell(context, "muted"), dash, dash, health, *[dash] * 6, message)
    return FleetRow(Row(f"{kind}\0{context}", cells), None)


def _place(found: ClusterSummary) -> tuple[str, str]:
    return found.ref.namespace, found.ref.name
