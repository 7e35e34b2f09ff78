"""Runs of an experiment tracker, and DCGM's counters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct, field


class ModelVersion(Struct, frozen=True):
    """A version of a model that MLflow's registry holds."""

    name: str
    version: str
    aliases: tuple[str, ...] = ()
    url: str = ""
    """The URL of its page in the tracker."""


class TrackedRun(Struct, frozen=True):
    """A run of MLflow."""

    id: str
    name: str
    experiment: str
    status: str
    """RUNNING, SCHEDULED, FINISHED, FAILED or KILLED."""
    started_s: float | None = None
    ended_s: float | None = None
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    """The newest value of each metric."""
    artifacts: tuple[str, ...] = ()
    """Paths below the artifact root, the first level."""
    models: tuple[ModelVersion, ...] = ()
    """The versions of registered models that the run has logged."""
    url: str = ""
    """The URL of its page in the tracker."""
    run_id: str = ""
    """The Ray Train run, if a tag or the name identifies it."""


class GpuActivity(Struct, frozen=True):
    """DCGM's counters of one GPU: how busy it is, which 100 % utilisation does not show."""

    node: str
    """Host name or address, as the exporter labels it."""
    gpu: str
    """The index on its node."""
    sm_active_percent: float | None = None
    """DCGM_FI_PROF_SM_ACTIVE: cycles in which a multiprocessor had a warp, averaged over all."""
    tensor_active_percent: float | None = None
    """DCGM_FI_PROF_PIPE_TENSOR_ACTIVE."""
    xid: int | None = None
    """DCGM_FI_DEV_XID_ERRORS: the last one."""
    pod: str = ""
    dram_active_percent: float | None = None
    """DCGM_FI_PROF_DRAM_ACTIVE: cycles in which the memory interface sends or receives."""
    nvlink_bytes_per_s: float | None = None
    """DCGM_FI_PROF_NVLINK_TX_BYTES and RX: both directions, without protocol headers."""
    pcie_bytes_per_s: float | None = None
    """DCGM_FI_PROF_PCIE_TX_BYTES and RX: both directions, with protocol headers."""
    namespace: str = ""
    """Of the pod."""
    address: str = ""
    """The host that Prometheus scrapes, which is the node's address for a host network."""
    uuid: str = ""


class RunRef(Struct, frozen=True):
    """A watched run, as queries of other systems need it."""

    id: str
    """Ray Train's run id."""
    name: str = ""
    started_s: float | None = None
    """If known: the run may have started before the session."""
    ended_s: float | None = None
    submission_id: str = ""
    first_point_s: float | None = None
    """The start of its curves; None while they are empty."""
    gpus: tuple[tuple[str, int], ...] = ()
    """Node address and GPU index of each GPU that its ranks use or have used."""


class PodRefs(Struct, frozen=True):
    """Pods of one namespace that another system is queried about."""

    namespace: str = ""
    names: frozenset[str] = frozenset()


Runs = Callable[[], Awaitable[Sequence[RunRef]]]
"""Returns the currently watched runs, for a source that queries another system about them."""


async def no_runs() -> Sequence[RunRef]:
    """Return no run."""
    return ()


Pods = Callable[[], Awaitable[PodRefs]]
"""The same for pods."""


async def no_pods() -> PodRefs:
    """Return no pod."""
    return PodRefs()
