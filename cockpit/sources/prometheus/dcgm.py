"""Metrics of NVIDIA's DCGM exporter for each GPU, through Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from cockpit.model.text import one_line
from cockpit.model.tracking import GpuActivity
from cockpit.sources.prometheus.api import Curve

SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
DRAM_ACTIVE = "DCGM_FI_PROF_DRAM_ACTIVE"
XID = "DCGM_FI_DEV_XID_ERRORS"
NVLINK = ("DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_PROF_NVLINK_RX_BYTES")
PCIE = ("DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES")
"""Gauges in bytes per second, in spite of their names (dcp-metrics-included.csv)."""
NAMES = (SM_ACTIVE, TENSOR_ACTIVE, DRAM_ACTIVE, XID, *NVLINK, *PCIE)

# `pod` is the exporter's own where Prometheus does not honour labels; the GPU's user is then in
# `exported_pod` (dcgm-exporter's documentation). A slice of a GPU (MIG) has a GPU_I_ID. Releases
# after 4.5.3-4.8.2 have the node in `hostname` instead of `Hostname` (dcgm-exporter #655).
_BY = (
    "__name__, Hostname, hostname, instance, gpu, GPU_I_ID, UUID, pod, exported_pod, namespace, "
    "exported_namespace"
)


def query(selector: str) -> str:
    """One question for all; the labels that are not used stay on the server."""
    inside = f'__name__=~"{"|".join(NAMES)}"'
    return f"max by ({_BY}) ({{{inside}{',' + selector if selector else ''}}})"


def activity(curves: Iterable[Curve]) -> tuple[GpuActivity, ...]:
    """By node and GPU. The profiling metrics are fractions of 1 (DCGM's field list)."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    labelled: dict[tuple[str, str], Mapping[str, str]] = {}
    for curve in curves:
        labels, value = curve.labels, curve.values[0]
        if not math.isfinite(value):
            continue
        node = labels.get("Hostname") or labels.get("hostname") or _host(labels)
        gpu, part = labels.get("gpu", ""), labels.get("GPU_I_ID", "")
        key = node, f"{gpu}/{part}" if part else gpu
        found.setdefault(key, {})[labels.get("__name__", "")] = value
        labelled[key] = labels
    return tuple(_activity(*key, found[key], labelled[key]) for key in sorted(found, key=_order))


def _activity(
    node: str, gpu: str, numbers: Mapping[str, float], labels: Mapping[str, str]
) -> GpuActivity:
    # Whose the labels are: without an exported pod, both are the GPU's, or both the exporter's.
    user = "exported_" if labels.get("exported_pod") else ""
    return GpuActivity(
        node=one_line(node),
        gpu=one_line(gpu),
        sm_active_percent=_percent(numbers.get(SM_ACTIVE)),
        tensor_active_percent=_percent(numbers.get(TENSOR_ACTIVE)),
        xid=int(numbers.get(XID, 0)) or None,  # 0: none
        pod=one_line(labels.get(f"{user}pod", "")),
        dram_active_percent=_percent(numbers.get(DRAM_ACTIVE)),
        nvlink_bytes_per_s=_total(numbers, NVLINK),
        pcie_bytes_per_s=_total(numbers, PCIE),
        namespace=one_line(labels.get(f"{user}namespace", "")),
        address=one_line(_host(labels)),
        uuid=one_line(labels.get("UUID", "")),
    )


def _host(labels: Mapping[str, str]) -> str:
    return labels.get("instance", "").rpartition(":")[0].strip("[]")


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else fraction * 100


def _total(numbers: Mapping[str, float], names: Iterable[str]) -> float | None:
    there = [numbers[name] for name in names if name in numbers]
    return sum(there) if there else None


def _order(key: tuple[str, str]) -> tuple[str, tuple[int, ...], str]:
    node, gpu = key
    return node, tuple(int(part) for part in gpu.split("/") if part.isdigit()), gpu
