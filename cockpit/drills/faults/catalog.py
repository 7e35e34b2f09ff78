"""All faults by name. The module of a family is imported when one of its faults is requested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module

from cockpit.drills.faults.fault import Fault
from cockpit.model.cluster import Capability
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

FAMILIES: dict[str, tuple[str, ...]] = {
    "pods": ("pod-kill", "pod-delete", "container-kill", "head-kill"),
    "processes": (
        "rank-kill", "raylet-kill", "rank-freeze", "slow-rank", "gcs-kill", "dashboard-kill",
    ),
    "pressure": ("cpu-hog", "memory-hog"),
    "cluster": ("node-drain", "spot-preemption", "evict", "scale-down"),
    "network": (
        "network-partition", "network-loss", "network-delay", "network-rate", "network-isolate",
    ),
    "storage": (
        "storage-full", "storage-read-only", "storage-slow", "checkpoint-corrupt",
        "checkpoint-delete",
    ),
    "chaos": ("random-kills",),
}  # fmt: skip
"""By module of `cockpit.drills.faults`, each with FAULTS: its faults by name."""

SLIP = 0.8
"""The minimum similarity of a mistyped name to a suggestion, of 1."""
NAMES = tuple(name for names in FAMILIES.values() for name in names)
ENDS_PODS = frozenset(
    {
        *FAMILIES["pods"], *FAMILIES["cluster"],
        "raylet-kill", "gcs-kill", "dashboard-kill",
    }
)  # fmt: skip
"""Faults that delete or restart pods: a replacement, or the pod itself, has to be ready again."""


def fault(name: str) -> Fault:
    """Raises UsageError for a name that there is not."""
    for family, names in FAMILIES.items():
        if name in names:
            rows: tuple[Fault, ...] = import_module(f"cockpit.drills.faults.{family}").FAULTS
            return next(row for row in rows if row.name == name)
    raise UsageError(
        f"There is no fault {one_line(name, 60)!r}{perhaps(name, NAMES)}",
        todo="cockpit drill list shows all.",
    )


def perhaps(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: at most three similar names.

    A typo of one or two letters matches one name; a part of a name (`kill`, `network`) may match
    several.
    """
    all_names = tuple(names)
    near = get_close_matches(name, all_names, n=1, cutoff=SLIP)
    near = near or [one for one in all_names if name and name in one][:3]
    near = near or get_close_matches(name, all_names, n=3)
    return f": did you mean {' or '.join(near)}?" if near else "."


def faults() -> tuple[Fault, ...]:
    """All of them, in the catalogue's order."""
    return tuple(fault(name) for name in NAMES)


RIGHTS = {
    "delete pods": "delete_pod",
    "exec in": "exec",
    "evict pods": "evict",
    "create network policies": "isolate",
    "cordon nodes": "cordon",
    "scale worker groups": "scale",
}
"""By the start of a `Fault`'s requirement: the verb of `Backend.capabilities`. Requirements of the
pod or the host are checked when a drill is prepared.
"""


def why_not(fault: Fault, backend: str, rights: Mapping[str, Capability]) -> str:
    """Return why there is no such fault for this user here, in one line; empty where there is."""
    if why := fault.obstacle(backend):
        return why
    for need in fault.needs:
        verb = next((verb for text, verb in RIGHTS.items() if need.startswith(text)), "")
        capability = rights.get(verb)
        if capability is not None and not capability.allowed:
            return f"{need}: {capability.why_not}"
    return ""
