"""Import what keys and events of the UI would import later, while nothing else happens.

A module that a view, a dialog or a drill imports at its first use takes memory from then on, and
delays that first use. Imported early, the memory of a UI that runs for days does not grow by it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules

PACKAGES = (
    *("cockpit.tui", "cockpit.actions", "cockpit.alerts", "cockpit.drills", "cockpit.insight"),
    *("cockpit.launch", "cockpit.preflight", "cockpit.recorder", "cockpit.sources.telemetry"),
)
"""All of their modules."""
MODULES = (
    *("cockpit.sources.http.client", "cockpit.sources.ray.failures"),
    *("dotenv.parser", "encodings.idna", "pathspec"),
    *("importlib.readers", "pwd", "textual.system_commands"),
)
BACKENDS = {
    "kuberay": (("cockpit.backends.kuberay",), ("websockets.asyncio.client",)),
    "local": (("cockpit.backends.local",), ()),
    "ssh": (("cockpit.backends.ssh",), ()),
}
"""By the backend of a cluster: the packages and the modules of its backend."""
ELSEWHERE = "pod_scripts"
"""Packages that run in pods and not in this process."""
BEGIN_AFTER_S = 5.0
"""The first tables are shown by then."""
PAUSE_S = 0.02
"""Between two modules, so that a key is processed at once."""


def begin(backend: str) -> None:
    """Import it in a thread. `backend` is that of `cockpit.model.cluster.ClusterRef`."""

    def run() -> None:
        time.sleep(BEGIN_AFTER_S)
        for name in names(backend):
            import_module(name)
            time.sleep(PAUSE_S)

    threading.Thread(target=run, name="late-imports", daemon=True).start()


def names(backend: str) -> Iterator[str]:
    """The modules in the order of their import. A package is imported to list its modules."""
    packages, modules = BACKENDS.get(backend, ((), ()))
    for package in (*PACKAGES, *packages):
        yield from _below(package)
    yield from (*MODULES, *modules)


def _below(package: str) -> Iterator[str]:
    yield package
    path: Sequence[str] = import_module(package).__path__
    for found in iter_modules(path, f"{package}."):
        if found.name.endswith(f".{ELSEWHERE}"):
            continue
        if found.ispkg:
            yield from _below(found.name)
        else:
            yield found.name
