"""Resource quotas of the namespace: how many more pods of a worker group they allow. Pure.

https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from cockpit.backends.kuberay.api.fields import items, mapping, quantity, text
from cockpit.model.cluster import QuotaRoom
from cockpit.model.text import one_line

ONE_EACH = ("pods", "count/pods")
REQUESTS, LIMITS = "requests.", "limits."


def room(cluster: Mapping[str, Any], quotas: Iterable[Any]) -> tuple[QuotaRoom, ...]:
    """For each quota and group, the resource that ends first.

    Quotas with a scope are left out: whether a pod is in it depends on more than its resources.
    """
    found: list[QuotaRoom] = []
    for raw in quotas:
        spec, status = mapping(raw, "spec"), mapping(raw, "status")
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        hard, used = mapping(status, "hard") or mapping(spec, "hard"), mapping(status, "used")
        name = one_line(text(mapping(raw, "metadata"), "name"))
        for group in items(mapping(cluster, "spec"), "workerGroupSpecs"):
            needs = _needs(group)
            left = {
                resource: max(0.0, quantity(most) - quantity(used.get(resource))) / needs[resource]
                for resource, most in hard.items()
                if needs.get(resource, 0.0) > 0
            }
            if left:
                least = min(left, key=lambda resource: left[resource])
                pods = math.floor(left[least] + 1e-9)
                of = one_line(text(group, "groupName"))
                found.append(QuotaRoom(name, of, one_line(least), pods))
    return tuple(found)


def _needs(group: Mapping[str, Any]) -> dict[str, float]:
    """By the names of a quota, what one pod of the group takes. A request defaults to its limit."""
    needs = dict.fromkeys(ONE_EACH, 1.0)
    for container in items(mapping(mapping(group, "template"), "spec"), "containers"):
        resources = mapping(container, "resources")
        limits = mapping(resources, "limits")
        for prefix, of in (
            (REQUESTS, {**limits, **mapping(resources, "requests")}),
            (LIMITS, limits),
        ):
            for resource, amount in of.items():
                name = f"{prefix}{resource}"
                needs[name] = needs.get(name, 0.0) + quantity(amount)
    for name in ("cpu", "memory"):  # without a prefix they are requests
        if f"{REQUESTS}{name}" in needs:
            needs[name] = needs[f"{REQUESTS}{name}"]
    return needs
