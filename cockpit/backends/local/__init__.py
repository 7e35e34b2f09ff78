"""The `local` backend: a Ray head and one raylet per pod on this Linux host, without containers.

`up` starts an operator in a separate process, which starts the pods and keeps their number;
`LocalBackend` reads its files and sends it requests. Ray is run, but not imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cockpit.backends.local.spec import GroupSpec
from cockpit.backends.local.state import LocalCluster, list_clusters, status

if TYPE_CHECKING:
    from cockpit.backends.local.backend import LocalBackend
    from cockpit.backends.local.lifecycle import up
    from cockpit.backends.local.removal import down

__all__ = ["GroupSpec", "LocalBackend", "LocalCluster", "down", "list_clusters", "status", "up"]

_LATER = {"LocalBackend": "backend", "up": "lifecycle", "down": "removal"}
"""Imported on first use: asyncio alone takes 45 ms, and a query needs neither of the others."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
