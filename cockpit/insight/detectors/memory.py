"""Full memory, disks and object stores, and growing memory: predict when it reaches the limit.

time to limit = (limit - used) / slope

The slope is Theil-Sen over twelve blocks of the last ten minutes, once warmed up. Growth that slows
down is a cache that fills: the second half must grow at least half as fast as the total. The limit
of a rank's GPU is its memory; of a node, its memory, with the growth of all ranks on it together. A
node that is nearly full is reported regardless of its growth, since Ray kills a worker at 95 % of
it (RAY_memory_usage_threshold). Disks and object stores are reported by their use only.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from cockpit import format
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import live_ranks, newest_s, stepping_since
from cockpit.insight.metrics.robust_statistics import blocks, slope, window
from cockpit.model.alert import Finding, Severity
from cockpit.model.cluster import Node
from cockpit.store.run import RankView, RunView
from cockpit.store.series import Series
from cockpit.store.store import Store

BLOCKS = 12
FEWEST = 24
_GIB = 1 << 30
_SOON_S = 600.0


class Part(Struct, frozen=True):
    """A part of a node that may be full."""

    kind: str
    name: str
    critical_percent: float
    effect: str
    """What Ray does when it is full."""
    todo: str


MEMORY = Part(
    "node-memory",
    "memory",
    0.0,
    "Ray kills a worker at 95 %",
    "Fewer data-loader workers or smaller caches; or larger pods",
)
DISK = Part(
    "node-disk",
    "disk",
    95.0,  # RAY_local_fs_capacity_threshold
    "Ray stops spilling objects to it at 95 %",
    "Delete old checkpoints, logs and Ray sessions; or use a larger disk",
)
OBJECT_STORE = Part(
    "object-store",
    "object store",
    math.inf,
    "Ray spills objects to disk from 80 %",  # RAY_object_spilling_threshold
    "Keep fewer object references, or start the node with a larger --object-store-memory",
)


class Growth(Struct, frozen=True):
    """Bytes a second, and how long until the limit at that pace."""

    bytes_per_s: float
    used_bytes: float
    limit_bytes: float

    @property
    def left_s(self) -> float:
        return max(0.0, self.limit_bytes - self.used_bytes) / self.bytes_per_s


def growth_bytes_per_s(series: Series, since_s: float, least_bytes: float) -> float:
    """0 for what grew by less than `least_bytes`, or is slowing down."""
    all_values = series.values
    if len(all_values) < FEWEST:
        return 0.0
    # Checked first, since it is cheap: of a thousand ranks most do not grow.
    first = bisect_left(series.times, since_s)
    if len(all_values) - first < FEWEST or all_values[-1] - all_values[first] < least_bytes:
        return 0.0
    times, values = window(series, since_s)
    if len(values) < FEWEST:
        return 0.0
    parts = blocks(times, values, BLOCKS)
    whole, second_half = slope(parts), slope(parts[len(parts) // 2 :])
    # It must not be one jump: nearly every block is above the one before.
    rises = sum(b > a for (_, a), (_, b) in pairwise(parts))
    steady = rises >= 0.75 * (len(parts) - 1)
    return whole if whole > 0 and second_half >= 0.5 * whole and steady else 0.0


def find(store: Store, run: RunView, limits: Thresholds) -> list[Finding]:
    """`gpu-memory` of a rank; `node-memory`, `node-disk` and `object-store` of a node."""
    return _gpus(run, limits) + _nodes(store, run, limits) + _disks_and_stores(store, run, limits)


def _since(run: RunView, limits: Thresholds) -> float | None:
    """The beginning of the window; None until all of it is after the warm-up."""
    since, newest = stepping_since(run), newest_s(run)
    if since is None or newest is None:
        return None
    begin = newest - limits.memory_window_s
    return begin if begin >= since + limits.warmup_s else None


def _gpus(run: RunView, limits: Thresholds) -> list[Finding]:
    since = _since(run, limits)
    if since is None:
        return []
    found = []
    for rank in live_ranks(run):
        sample = rank.sample
        total = sample.gpu_memory_total_bytes if sample is not None else None
        used = sample.gpu_memory_bytes if sample is not None else None
        if not total or used is None:
            continue
        least = total * limits.memory_growth_percent / 100
        pace = growth_bytes_per_s(rank.curves["gpu_memory_bytes"], since, least)
        if pace > 0 and (it := Growth(pace, used, total)).left_s <= limits.memory_horizon_s:
            what = f"GPU memory of rank {rank.rank}"
            found.append(_growing("gpu-memory", f"rank {rank.rank}", what, it, run, limits))
    return found


def _nodes(store: Store, run: RunView, limits: Thresholds) -> list[Finding]:
    by_ip: dict[str, list[RankView]] = defaultdict(list)
    for rank in live_ranks(run):
        if rank.placement is not None:
            by_ip[rank.placement.node_ip].append(rank)
    since = _since(run, limits)
    found = []
    for node in store.nodes.values():
        used, total = node.memory_used_bytes, node.memory_total_bytes
        if not node.alive or used is None or not total:
            continue
        ranks = by_ip.get(node.ip, []) if node.ip else []
        if 100 * used / total >= limits.memory_percent:
            found.append(_full(MEMORY, node, used, total, limits.memory_percent, run, ranks))
            continue
        if since is None or not ranks:
            continue
        least = total * limits.memory_growth_percent / 100 / len(ranks)
        pace = sum(growth_bytes_per_s(r.curves["memory_bytes"], since, least) for r in ranks)
        if pace > 0 and (it := Growth(pace, used, total)).left_s <= limits.memory_horizon_s:
            what = f"Memory of node {node.ip} ({format.ranks(rank.rank for rank in ranks)})"
            found.append(_growing("node-memory", f"node {node.ip}", what, it, run, limits))
    return found


def _disks_and_stores(store: Store, run: RunView, limits: Thresholds) -> list[Finding]:
    """A disk is reported once for each host: the nodes of a local cluster share it."""
    alive = [node for node in store.nodes.values() if node.alive]
    hosts = {node.hostname or node.id: node for node in reversed(alive)}.values()
    parts = [
        *((DISK, it, it.disk_used_bytes, it.disk_total_bytes, limits.disk_percent) for it in hosts),
        *(
            (OBJECT_STORE, it, it.object_store_used_bytes, it.object_store_total_bytes,
             limits.object_store_percent)
            for it in alive
        ),
    ]  # fmt: skip
    return [
        _full(part, node, used, total, percent, run)
        for part, node, used, total, percent in parts
        if used is not None and total and 100 * used / total >= percent
    ]


def _growing(
    kind: str, subject: str, what: str, it: Growth, run: RunView, limits: Thresholds
) -> Finding:
    return Finding(
        kind,
        subject,
        Severity.CRITICAL if it.left_s <= _SOON_S else Severity.WARNING,
        f"{what} grows by {it.bytes_per_s * 60 / (1 << 20):.3g} MiB per minute: full in "
        f"{format.in_minutes(it.left_s, 0)}",
        f"{it.used_bytes / _GIB:.3g} of {it.limit_bytes / _GIB:.3g} GiB used; the trend is robust "
        f"over {format.in_minutes(limits.memory_window_s, 0)}; threshold "
        f"{format.in_seconds(limits.memory_horizon_s)} "
        "until full",
        "Check what is kept from step to step (losses, graphs, caches); save a checkpoint soon",
        run.id,
    )


def _full(
    part: Part,
    node: Node,
    used: int,
    total: int,
    limit_percent: float,
    run: RunView,
    ranks: Sequence[RankView] = (),
) -> Finding:
    whose = f" ({format.ranks(rank.rank for rank in ranks)})" if ranks else ""
    name, percent = node.ip or node.hostname, 100 * used / total
    return Finding(
        part.kind,
        f"node {name}",
        Severity.CRITICAL if percent >= part.critical_percent else Severity.WARNING,
        f"Node {name}{whose} uses {percent:.0f} % of its {part.name}",
        f"{used / _GIB:.3g} of {total / _GIB:.3g} GiB; threshold {limit_percent:g} %, "
        f"{part.effect}",
        part.todo,
        run.id,
    )
