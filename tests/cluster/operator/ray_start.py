"""The `ray start` command of a node, from rayStartParams and the container's resources."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.cluster.operator.api import Object
from tests.cluster.operator.quantity import Quantity

GCS_PORT = 6379
AGENT_PORT = 52365
METRICS_PORT = 8080
_GPU = re.compile(r".*gpu$|nvidia\.com/mig-\d+g\.\d+gb$")
_NOT_SWITCHES = ("log-color", "include-dashboard", "include-log-monitor")
"""Options of `ray start` that require an explicit `true` or `false`."""


def parameters(given: Mapping[str, str], resources: Object, *, address: str = "") -> dict[str, str]:
    """The given options, and those that a node in a pod needs besides.

    With an address: a worker's.
    """
    found = dict(given)
    if address:
        found.setdefault("address", f"{address}:{head_port(given)}")
    else:
        found.setdefault("dashboard-host", "0.0.0.0")
    found.setdefault("metrics-export-port", str(METRICS_PORT))
    found.setdefault("dashboard-agent-listen-port", str(AGENT_PORT))
    found["block"] = "true"
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    if cpu := limits.get("cpu") or requests.get("cpu"):
        found.setdefault("num-cpus", str(Quantity.parse(cpu).whole))
    if memory := limits.get("memory"):
        found.setdefault("memory", str(Quantity.parse(memory).whole))
    for name in sorted(limits):
        if _GPU.fullmatch(name) and Quantity.parse(limits[name]).amount:
            found.setdefault("num-gpus", str(Quantity.parse(limits[name]).whole))
    return found


def command(found: Mapping[str, str], *, head: bool) -> str:
    """With the spaces of the real operator, since people compare the two."""
    options = []
    for name in sorted(found):
        value = found[name]
        if value.lower() in ("true", "false") and name not in _NOT_SWITCHES:
            if value.lower() == "true":
                options.append(f" --{name} ")
        else:
            options.append(f" --{name}={value} ")
    return f"ray start {'--head ' if head else ''}{''.join(options)}"


def head_port(head_params: Mapping[str, str]) -> str:
    return head_params.get("port", str(GCS_PORT))
