"""The protocol that every kind of cluster implements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from cockpit.model.cluster import Capability, ClusterRef, DashboardRoute, QuotaRoom
from cockpit.model.driver import NOTHING_RESERVED, DriverResources
from cockpit.model.event import Event
from cockpit.model.new_cluster import NewCluster
from cockpit.model.scale import ScaleRequest

VERBS = (
    "scale",
    "delete_pod",
    "exec",
    "logs",
    "launch",
    "rayjob",
    "suspend",
    "cordon",
    "manifest",
    "describe",
    "evict",
    "isolate",
)
"""The keys of `capabilities`."""


class Scaled(Struct, frozen=True):
    """The result of a scale request: counts before and after, and warnings."""

    group: str
    before: int
    after: int
    warning: str = ""


class ExecResult(Struct, frozen=True):
    exit_code: int
    stdout: str
    stderr: str


class RayJobSpec(Struct, frozen=True):
    """A RayJob resource to create: one submission that Kubernetes manages."""

    name: str
    entrypoint: str
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """Ray's runtime environment, without the working directory."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    driver: DriverResources = NOTHING_RESERVED
    package: bytes = b""
    """The working directory as a zip, for a new cluster; empty with `working_dir`."""
    working_dir: str = ""
    """A `gcs://` address that the existing cluster already has."""
    own_cluster: bool = False
    """Run on a cluster made for it, after the pattern of this one, and removed with it."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """For a new cluster: replicas by worker group; unnamed groups are as in the pattern."""
    image: str = ""
    """For a new cluster: the image of its Ray containers; empty: as in the pattern."""
    queue: str = ""
    """For a new cluster: `NAME` of a LocalQueue of Kueue, or `volcano:NAME`; empty: no queue."""
    ttl_s: int | None = None
    """Seconds after its end at which it is deleted; None: never automatically."""
    deadline_s: int | None = None
    """Seconds after which it is ended and counts as failed; None: no limit."""
    backoff_limit: int = 0
    """How often KubeRay tries again with a new submission."""


class Change(Struct, frozen=True):
    """A change that was made, as the audit log has it."""

    action: str
    kind: str
    """The kind of the object that was changed: `RayCluster`, `Pod`, `RayJob`, `Node`."""
    name: str
    before: str = ""
    after: str = ""


class Terminal(Protocol):
    """A command in a pod with open streams, optionally on a terminal."""

    def output(self) -> AsyncIterator[bytes]:
        """Yield its output as it arrives, until the command has ended."""
        ...

    async def write(self, data: bytes) -> None: ...

    async def close_input(self) -> None: ...

    async def resize(self, rows: int, columns: int) -> None: ...

    async def wait(self) -> int:
        """The exit code, once it has ended."""
        ...

    async def aclose(self) -> None: ...


class Backend(Protocol):
    """One cluster. Every method may raise the errors of `cockpit.model.error`.

    Unsupported methods raise UsageError, and `capabilities` returns the reason.
    """

    @property
    def ref(self) -> ClusterRef: ...

    def watch(self) -> AsyncIterator[Event]:
        """Yield ClusterSeen, GroupsListed, PodsListed, Notice and SourceHealth (source `backend`).

        On Kubernetes KubernetesNodesListed and JobsListed (the RayJobs) too. The current state is
        first, then every change, until it is closed. A lost connection is reported by SourceHealth
        and restored; the iterator does not end.
        """
        ...

    async def scale(self, request: ScaleRequest) -> Scaled:
        """Request that number of replicas, clamped to min and max."""
        ...

    async def delete_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        """Delete the pod: SIGTERM and `grace_s` seconds, or with 0 SIGKILL at once.

        `uid` is `Pod.uid` in the plan: raises ReplacedError if another pod has the name now.
        Returns when the request is accepted, not when the pod has been removed.
        """
        ...

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        """Run a command in the pod to its end; `uid`: only in the pod of this UID, as `scale`."""
        ...

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        """Run a command with its input and output open: a shell in the pod."""
        ...

    def logs(
        self, pod: str, *, follow: bool, lines: int = 1000, previous: bool = False
    ) -> AsyncIterator[str]:
        """The pod's own output, the last `lines` of it first; clean lines without a newline.

        `previous`: that of the container before its last restart.
        """
        ...

    async def manifest(self, kind: str, name: str) -> str:
        """The object as the cluster has it, as YAML without control characters.

        `kind` is `cluster`, `group`, `pod`, `node` or `rayjob`.
        """
        ...

    async def describe(self, kind: str, name: str) -> str:
        """Describe the object for a user, with its latest events at the end."""
        ...

    async def suspend(self, suspended: bool, *, uid: str = "") -> None:
        """Remove all pods, or create them again; `uid` as for `scale`."""
        ...

    async def cordon(self, node: str, cordoned: bool, *, uid: str = "") -> None:
        """Keep new pods off a Kubernetes node, or allow them again; `uid` is the node's."""
        ...

    async def evict_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        """Request the pod's eviction, which disruption budgets may refuse.

        Otherwise as `delete_pod`.
        """
        ...

    async def isolate(self, pod: str, name: str, *, uid: str) -> None:
        """Let nothing in or out of the pod, by a network policy of this name."""
        ...

    async def rejoin(self, name: str) -> None:
        """Delete the policy, and let the pod back in; one that does not exist is no error."""
        ...

    async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
        """Take the cluster for one drill, or renew it: at most one at a time.

        Raises LeaseHeldError that names who has it. Whether that holder still lives is for the
        caller to observe: `expired` is the error's `renewal` once it has not changed for its
        `ttl_s`, and the lease is then taken if it has not changed since.
        """
        ...

    async def release(self, holder: str) -> None:
        """Release it, if it is still this holder's."""
        ...

    async def holder(self) -> str:
        """Who has the cluster for a drill now, as it called itself to `hold`; empty: no drill."""
        ...

    async def quota_room(self) -> tuple[QuotaRoom, ...]:
        """By worker group, what the quotas of the namespace leave; empty without a quota."""
        ...

    async def new_cluster(self, spec: RayJobSpec, *, may_try: bool) -> NewCluster:
        """What there is for the cluster that this RayJob would create. Creates nothing.

        `may_try`: let the API server check the RayJob, without creating it. Raises UsageError for
        what Kubernetes or KubeRay would not take.
        """
        ...

    async def create_rayjob(self, spec: RayJobSpec) -> str:
        """Make it; returns its name."""
        ...

    async def stop_rayjob(self, name: str, *, uid: str) -> None:
        """End it. `uid` is `Job.rayjob_uid` as the plan has it; ReplacedError for another one."""
        ...

    async def delete_rayjob(self, name: str, *, uid: str) -> None:
        """Delete the resource; `uid` as for `stop_rayjob`."""
        ...

    async def announce(self, change: Change) -> None:
        """Leave a trace of a change on the object itself, where rights allow; raises nothing."""
        ...

    async def aclose(self) -> None:
        """Close connections. The backend belongs to the event loop that used it first."""
        ...

    async def dashboard(self) -> DashboardRoute:
        """A route that works now. Raises UnreachableError when the head is not up."""
        ...

    async def capabilities(self) -> Mapping[str, Capability]:
        """By verb, each of `VERBS`; what is not allowed has a reason."""
        ...
