"""The `local` backend: a real Ray head and a raylet a pod on this Linux machine, no container.

`up` starts an operator in a process of its own, which starts the pods and keeps them as wanted;
`LocalBackend` reads its files and sends it requests. Nothing here imports Ray: it is only run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cockpit.backends.local.lifecycle import list_clusters, status, up
from cockpit.backends.local.removal import down
from cockpit.backends.local.spec import GroupSpec
from cockpit.backends.local.state import LocalCluster

if TYPE_CHECKING:
    from cockpit.backends.local.backend import LocalBackend

__all__ = ["GroupSpec", "LocalBackend", "LocalCluster", "down", "list_clusters", "status", "up"]


def __getattr__(name: str) -> Any:
    # asyncio takes 45 ms to import, and `cockpit local status` does without it.
    if name == "LocalBackend":
        from cockpit.backends.local.backend import LocalBackend

        return LocalBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
