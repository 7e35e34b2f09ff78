"""Whether a fault can be had on a cluster: its kind, and this user's rights there. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from cockpit.drills.faults.fault import Fault
from cockpit.model.cluster import Capability

RIGHTS = {
    "delete pods": "delete_pod",
    "exec in": "exec",
    "evict pods": "evict",
    "network policies": "isolate",
    "cordon machines": "cordon",
    "scale groups": "scale",
}
"""By the first words of what a `FaultKind` needs: the verb of `Backend.capabilities` that tells.
Other needs are of the pod or the machine: they are looked at when a drill is prepared."""


def why_not(fault: Fault, backend: str, rights: Mapping[str, Capability]) -> str:
    """Why there is no such fault here, in one line; empty where it can be had."""
    if why := fault.obstacle(backend):
        return why
    for need in fault.kind.needs:
        verb = next((verb for words, verb in RIGHTS.items() if need.startswith(words)), "")
        capability = rights.get(verb)
        if capability is not None and not capability.allowed:
            return f"{need}: {capability.why_not}"
    return ""
