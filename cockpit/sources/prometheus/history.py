"""The series that contain a run's curves, and the PromQL queries for them.

`training.telemetry` exports its metrics with `ray.util.metrics` as `cockpit_train_…`, which Ray
exports as `ray_cockpit_train_…`, with the tags `run` (Ray Train's run id) and `rank`. For a large
run, `rank` is `min`, `mean` and `max` (training/telemetry/head/metrics.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from cockpit.sources.prometheus import network, serve
from cockpit.sources.prometheus.api import Curve, quoted
from training.telemetry.metric_table import CURVES

MOST_POINTS = 2_000
LEAST_STEP_S = 10
"""How often the Prometheus that Ray sets up looks; finer steps would repeat points."""
HISTORY_S = 15 * 86_400.0
"""Prometheus keeps 15 days by default."""
MOST_NODES = 256
"""More addresses would make a query too long for the proxies on the way."""

_EXPORTED = [metric for metric in CURVES.values() if metric.gauge]
MEANS = {metric.name: metric.gauge for metric in _EXPORTED if not metric.total}
"""Field of `RankSample`: what follows `cockpit_train_`. A run's value is the mean of its ranks'."""
SUMS = {metric.name: metric.gauge for metric in _EXPORTED if metric.total}
"""The same; a run's value is the sum of its ranks'."""

MIB = 1024 * 1024
NODE_GPUS = {
    "gpu_utilization_percent": ("avg", "ray_node_gpus_utilization", 1.0),
    "gpu_temperature_c": ("avg", "ray_node_gpu_temperature_celsius", 1.0),
    "gpu_memory_bytes": ("sum", "ray_node_gram_used", float(MIB)),
    "gpu_power_w": ("sum", "ray_node_gpu_power_milliwatts", 1e-3),
}
"""Metrics of Ray's agents on the GPUs of a node: how to join them, the metric, and its unit."""

WORLD_SIZE = "world_size"

_PREFIX = "cockpit_train_"
# Two processes may report one rank for some time: an aggregator that was replaced.
_BY_RANK = "max by (__name__, rank)"


def presence(selector: str) -> str:
    """Which of all that this source reads the server has: one series a name."""
    names = (f"(ray_)?{_PREFIX}step", "ray_node_cpu_count", "DCGM_FI_.*", serve.LATENCY)
    series = _series("|".join((*names, network.RECEIVED)), selector=selector)
    return f"count by (__name__) ({series})"


def beginning(run_id: str, step_s: int, selector: str) -> str:
    """The number of series of the run, at each step with any."""
    series = _series(f"(ray_)?{_PREFIX}.+", f"run={quoted(run_id)}", selector=selector)
    # last_over_time keeps the names apart, present_over_time does not, and fails for it.
    return f"count(last_over_time({series}[{step_s}s]))"


def means(run_id: str, selector: str) -> str:
    """All curves of MEANS at once, over the ranks, however many there are."""
    series = _of_run(run_id, MEANS.values(), 'rank!~"min|max"', selector)
    return f"avg by (__name__) ({_BY_RANK} ({series}))"


def sums(run_id: str, selector: str) -> str:
    """All curves of SUMS at once, over the ranks of a small world."""
    series = _of_run(run_id, SUMS.values(), 'rank!~"min|mean|max"', selector)
    return f"sum by (__name__) ({_BY_RANK} ({series}))"


def means_of_sums(run_id: str, selector: str) -> str:
    """For a large world: the means of SUMS, and the number of ranks, which makes them sums."""
    series = _of_run(run_id, (*SUMS.values(), WORLD_SIZE), 'rank=~"mean|"', selector)
    return f"max by (__name__) ({series})"


def times_ranks(curves: Sequence[Curve]) -> list[Curve]:
    """What `means_of_sums` found as sums, where the number of ranks is known."""
    ranks: dict[float, float] = {}
    for curve in curves:
        if _suffix(curve) == WORLD_SIZE:
            ranks.update(zip(curve.times, curve.values, strict=True))
    found = []
    for curve in curves:
        points = [
            (at_s, value * ranks[at_s])
            for at_s, value in zip(curve.times, curve.values, strict=True)
            if at_s in ranks
        ]
        if points and _suffix(curve) != WORLD_SIZE:
            times, values = zip(*points, strict=True)
            found.append(Curve(curve.labels, times, values))
    return found


def field_of(curve: Curve, fields: Mapping[str, str]) -> str:
    """The field of `RankSample` for a series; empty for other series."""
    return next((field for field, suffix in fields.items() if suffix == _suffix(curve)), "")


def node_gpus(field: str, gpus: Sequence[tuple[str, int]], selector: str) -> str:
    """Ray's metrics of these GPUs, (address, index) each; empty for too many nodes."""
    how, metric, _ = NODE_GPUS[field]
    indices: dict[str, set[int]] = defaultdict(set)
    for address, index in gpus:
        indices[address].add(index)
    alike: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for address, found in sorted(indices.items()):
        alike[tuple(sorted(found))].append(address)
    if not indices or len(indices) > MOST_NODES:
        return ""
    parts = [
        _series(
            metric,
            f"ip=~{quoted(_any(addresses))}",
            f"GpuIndex=~{quoted(_any(map(str, found)))}",
            selector=selector,
        )
        for found, addresses in alike.items()
    ]
    return f"{how}(max by (ip, GpuIndex) ({' or '.join(parts)}))"


def step_of(span_s: float, least_s: int = LEAST_STEP_S) -> int:
    """An integer number of seconds, so that a range has at most MOST_POINTS."""
    return max(least_s, math.ceil(span_s / (MOST_POINTS - 1)))


def _of_run(run_id: str, suffixes: Iterable[str], matcher: str, selector: str) -> str:
    names = f"(ray_)?{_PREFIX}({'|'.join(suffixes)})"
    return _series(names, f"run={quoted(run_id)}", matcher, selector=selector)


def _suffix(curve: Curve) -> str:
    return curve.labels.get("__name__", "").removeprefix("ray_").removeprefix(_PREFIX)


def _series(names: str, *matchers: str, selector: str) -> str:
    inside = [f"__name__=~{quoted(names)}", *matchers, *([selector] if selector else [])]
    return "{" + ",".join(inside) + "}"


def _any(texts: Iterable[str]) -> str:
    return "|".join(text.replace(".", "[.]") for text in texts)
