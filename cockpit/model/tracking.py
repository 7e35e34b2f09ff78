"""What other systems know of the runs: an experiment tracker, and DCGM's counters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct, field


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
    """The newest value of each."""
    artifacts: tuple[str, ...] = ()
    """Paths below the artifact root, the first level."""
    url: str = ""
    """Its page in the tracker."""
    run_id: str = ""
    """The Ray Train run, when a tag or the name says which."""


class GpuActivity(Struct, frozen=True):
    """One GPU as DCGM sees it. 100 % utilisation is not efficiency: these say how busy it is."""

    node: str
    """Host name or address, as the exporter labels it."""
    gpu: str
    """The index on its node."""
    sm_active_percent: float | None = None
    """DCGM_FI_PROF_SM_ACTIVE: cycles in which a multiprocessor had a warp, mean over them."""
    tensor_active_percent: float | None = None
    """DCGM_FI_PROF_PIPE_TENSOR_ACTIVE."""
    xid: int | None = None
    """DCGM_FI_DEV_XID_ERRORS: the last one."""
    pod: str = ""


class RunRef(Struct, frozen=True):
    """A run that is watched, as other systems are asked about it."""

    id: str
    """Ray Train's run id."""
    name: str = ""
    started_s: float | None = None
    """As far as it is known: the beginning may have been before anybody watched."""
    ended_s: float | None = None
    submission_id: str = ""
    first_point_s: float | None = None
    """Where its curves begin; None while they are empty."""
    gpus: tuple[tuple[str, int], ...] = ()
    """Address of the node and index on it, of each GPU that its ranks use or have used."""


Runs = Callable[[], Awaitable[Sequence[RunRef]]]
"""Returns the runs that are watched now, for a source that asks another system about them."""


async def no_runs() -> Sequence[RunRef]:
    """Return no run."""
    return ()
