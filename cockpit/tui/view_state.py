"""The input of a view, and its interface."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct

from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError
from cockpit.store.store import Store

WIDTHS = [(0, "-narrow"), (78, "-normal"), (120, "-wide")]
HEIGHTS = [(0, "-tiny"), (12, "-short"), (22, "-medium"), (36, "-tall")]
"""Classes that a screen carries from that many cells on."""


class ViewState(Struct, frozen=True):
    """Everything that is known at one instant. The store must only be read."""

    store: Store
    now_s: float
    connected: bool = True
    progress: tuple[str, ...] = ()
    """The output of the start so far."""
    failure: CockpitError | None = None
    """Why there will be no connection."""
    cluster: str = ""
    paused: bool = False
    read_only: bool = False
    protected: bool = False
    """Whether a destructive act asks for the name of the cluster."""
    chosen: bool = True
    """Whether a cluster is shown, or only the fleet to choose one from."""
    switching: str = ""
    """The cluster that is being connected."""
    fleet: Store | None = None
    """All clusters by context; None if only one is available."""
    ref: ClusterRef | None = None
    route: str = ""
    """How the dashboard is reached, such as `service proxy`."""

    @property
    def on_kubernetes(self) -> bool:
        return self.ref is not None and self.ref.backend == "kuberay"

    @property
    def lists_nodes(self) -> bool:
        """Whether the backend lists what the pods run on: K8s nodes, or hosts."""
        return self.ref is not None and self.ref.backend in ("kuberay", "ssh")


class Target(Struct, frozen=True):
    """The selected object."""

    kind: str
    """`pod`, `rank`, `job`, `group`, `node`, `cluster` or `hang`."""
    name: str


@runtime_checkable
class Live(Protocol):
    """A screen that is drawn again and again."""

    @property
    def is_mounted(self) -> bool: ...

    def redraw(self, state: ViewState) -> None: ...


@runtime_checkable
class ShowsLogs(Protocol):
    """A screen that can show a log by its stream's name (`tui.changes.actions.LogSource`)."""

    async def show_log(self, stream: str) -> None: ...
