"""The resources that each rank reserves on a node, and the nodes for ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training.settings import setting

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]i?)?B?")
_UNITS = {None: 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", start=1)}
_ROUNDING = 1e-6
"""A quotient of floats may be a little less than the number that it means: 0.6 / 0.2."""


@dataclass(frozen=True)
class Placement:
    """Placement"""

    cpus_per_worker: float = setting(
        0.0, "CPUs that each rank reserves; 0: one, or none with a GPU", at_least=0
    )
    gpus_per_worker: float = setting(
        0.0, "GPUs that each rank reserves when it uses GPUs; 0: one", at_least=0
    )
    memory_per_worker: str = setting("", "memory that each rank reserves, as 4Gi; empty: none")
    placement: str = setting(
        "pack",
        "place ranks on few nodes or on many; strict: on one node, or each on another node",
        ("pack", "spread", "strict_pack", "strict_spread"),
    )
    label_selector: str = setting(
        "", "Ray labels of the nodes to use, as region=eu,market=!spot; empty: all nodes"
    )


def resources(settings: Placement, takes: str) -> dict[str, float]:
    """The resources of one rank, by Ray's names; `takes` is CPU or GPU. Exits if a setting is
    wrong.
    """
    found: dict[str, float] = {}
    if cpus := settings.cpus_per_worker or float(takes == "CPU"):
        found["CPU"] = cpus
    if takes == "GPU":
        found["GPU"] = settings.gpus_per_worker or 1.0
    if settings.memory_per_worker:
        match = _SIZE.fullmatch(settings.memory_per_worker)
        if match is None:
            size = settings.memory_per_worker
            raise SystemExit(f"--memory-per-worker {size}: use, for example, 4Gi")
        found["memory"] = float(int(float(match[1]) * _UNITS[match[2]]))
    return found


def labels(settings: Placement) -> dict[str, str] | None:
    """The label selector for Ray; None for every node. Exits if it is wrong."""
    found: dict[str, str] = {}
    for part in filter(None, re.split(r",\s*(?![^()]*\))", settings.label_selector)):
        key, separator, value = part.partition("=")
        if not separator or not key or not value:
            example = "use, for example, region=eu or market=!spot"
            raise SystemExit(f"--label-selector {part}: {example}")
        found[key] = value
    return found or None


def scaling(settings: Placement, takes: str) -> dict[str, Any]:
    """The arguments for Ray's `ScalingConfig` from these settings."""
    return {
        "use_gpu": takes == "GPU",
        "resources_per_worker": resources(settings, takes),
        "placement_strategy": settings.placement.upper(),
        "label_selector": labels(settings),
    }


def per_node(each: Mapping[str, float], there: Mapping[str, float], *, strict_spread: bool) -> int:
    """How many ranks with these resources fit on one node."""
    fit = min(
        (int(there.get(name, 0) / amount + _ROUNDING) for name, amount in each.items()), default=0
    )
    return min(fit, 1) if strict_spread else fit
