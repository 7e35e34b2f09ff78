"""Metrics of NVIDIA's DCGM exporter for each GPU, through Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cockpit.model.text import one_line
from cockpit.model.tracking import GpuActivity
from cockpit.sources.prometheus.api import Curve

SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
XID = "DCGM_FI_DEV_XID_ERRORS"

# `pod` is the exporter's own where Prometheus does not honour labels; the GPU's user is then in
# `exported_pod` (dcgm-exporter's documentation). A slice of a GPU (MIG) has a GPU_I_ID. Releases
# after 4.5.3-4.8.2 have the node in `hostname` instead of `Hostname` (dcgm-exporter #655).
_BY = "__name__, Hostname, hostname, instance, gpu, GPU_I_ID, pod, exported_pod"


def query(selector: str) -> str:
    """One question for all; the labels that are not used stay on the server."""
    inside = f'__name__=~"{SM_ACTIVE}|{TENSOR_ACTIVE}|{XID}"'
    return f"max by ({_BY}) ({{{inside}{',' + selector if selector else ''}}})"


def activity(curves: Iterable[Curve]) -> tuple[GpuActivity, ...]:
    """By node and GPU. The profiling metrics are fractions of 1 (DCGM's field list)."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    pods: dict[tuple[str, str], str] = {}
    for curve in curves:
        labels, value = curve.labels, curve.values[0]
        if not math.isfinite(value):
            continue
        named = labels.get("Hostname") or labels.get("hostname")
        node = named or labels.get("instance", "").rpartition(":")[0]
        gpu, part = labels.get("gpu", ""), labels.get("GPU_I_ID", "")
        key = node, f"{gpu}/{part}" if part else gpu
        found.setdefault(key, {})[labels.get("__name__", "")] = value
        pods[key] = labels.get("exported_pod") or labels.get("pod", "")
    return tuple(
        GpuActivity(
            node=one_line(node),
            gpu=one_line(gpu),
            sm_active_percent=_percent(numbers.get(SM_ACTIVE)),
            tensor_active_percent=_percent(numbers.get(TENSOR_ACTIVE)),
            xid=int(numbers.get(XID, 0)) or None,  # 0: none
            pod=one_line(pods[node, gpu]),
        )
        for (node, gpu), numbers in sorted(found.items(), key=lambda item: _order(item[0]))
    )


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else fraction * 100


def _order(key: tuple[str, str]) -> tuple[str, tuple[int, ...], str]:
    node, gpu = key
    return node, tuple(int(part) for part in gpu.split("/") if part.isdigit()), gpu
