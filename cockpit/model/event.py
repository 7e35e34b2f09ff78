"""Everything that can be learned, as events: what was true, when, and who said so.

A source yields events, the store reduces them; recordings are files of them. An event that lists
(`PodsListed`, …) replaces everything of its kind that the same source said before.
"""

from __future__ import annotations

from msgspec import Struct, field

from cockpit.model.alert import Alert
from cockpit.model.cluster import (
    ClusterHealth,
    ClusterRef,
    ClusterSummary,
    Machine,
    Node,
    Pod,
    WorkerGroup,
)
from cockpit.model.death import MemoryKill
from cockpit.model.drill import Drill, DrillRecord, ProbeResult, Stage
from cockpit.model.hang import Dump, ProcessGroup, Stack
from cockpit.model.run import (
    Checkpoint,
    Job,
    Phase,
    Placement,
    RankMetrics,
    RankSample,
    RunState,
    Spread,
    Trial,
)
from cockpit.model.tracking import GpuActivity, TrackedRun


class Event(Struct, frozen=True, kw_only=True):
    """What all events share."""

    at_s: float
    """When it was true, by the clock of the source that said so."""
    source: str
    """`backend`, `ray`, `telemetry`, `logs`, `user`, …"""


class SourceHealth(Event, frozen=True, kw_only=True):
    """A source speaks of itself: each successful poll or read says `ok`, each failure why."""

    ok: bool
    error: str = ""
    retry_at_s: float | None = None
    absent: bool = False
    """Not broken, just not there (no telemetry file yet, no Prometheus configured)."""


class ClusterSeen(Event, frozen=True, kw_only=True):
    ref: ClusterRef
    health: ClusterHealth
    message: str = ""
    ray_version: str = ""
    uid: str = ""
    """Never given to another cluster, unlike the name; empty where there is no such thing."""


class GroupsListed(Event, frozen=True, kw_only=True):
    groups: tuple[WorkerGroup, ...]


class PodsListed(Event, frozen=True, kw_only=True):
    pods: tuple[Pod, ...]
    more: bool = False
    """The first list is still coming in, page by page: pods that are missing are not gone."""


class NodesListed(Event, frozen=True, kw_only=True):
    nodes: tuple[Node, ...]


class MachinesListed(Event, frozen=True, kw_only=True):
    machines: tuple[Machine, ...]


class ClustersListed(Event, frozen=True, kw_only=True):
    """All RayClusters that one context shows; the source is `context:NAME`."""

    context: str
    clusters: tuple[ClusterSummary, ...]


class JobsListed(Event, frozen=True, kw_only=True):
    """The jobs as Ray has them (source `ray`), or as RayJobs (source `backend`)."""

    jobs: tuple[Job, ...]


class Notice(Event, frozen=True, kw_only=True):
    """One line of what happened to an object, like a Kubernetes Event."""

    kind: str
    """`Pod`, `WorkerGroup`, `Job`, `Run`, `Cluster`."""
    name: str
    reason: str
    """CamelCase, as Kubernetes has it: `Killed`, `Started`, `Scaled`."""
    message: str
    warning: bool = False


class RunSeen(Event, frozen=True, kw_only=True):
    """A run exists, or changed state."""

    run_id: str
    name: str
    state: RunState
    job_id: str = ""
    """Ray's hexadecimal job id of the driver."""
    submission_id: str = ""
    world_size: int | None = None
    message: str = ""
    """For ERRORED: the error in one line."""
    max_failures: int | None = None
    max_preemption_failures: int | None = None
    """Restarts that it may have, of Ray Train's FailureConfig; -1: without end, None: not told."""


class AttemptStarted(Event, frozen=True, kw_only=True):
    """A worker group is up: the ranks have their processes."""

    run_id: str
    attempt: int
    """Counted from 1."""
    placements: tuple[Placement, ...]


class AttemptEnded(Event, frozen=True, kw_only=True):
    run_id: str
    attempt: int
    reason: str
    """One line; empty for an attempt that finished."""
    budget: str = ""
    """What it was charged to: `max_failures`, `max_preemption_failures`, …; `none` for an end that
    costs nothing, empty where nobody says."""


class RankSampled(Event, frozen=True, kw_only=True):
    """One tick. Of a large world some ranks are told in turn, and of all of them the spreads."""

    run_id: str
    samples: tuple[RankSample, ...]
    spreads: tuple[Spread, ...] = ()
    attempt: int = 0
    """Of the spreads."""
    reporting: int | None = None
    """With spreads: how many ranks gave a sample since the last tick."""
    silent: tuple[int, ...] = ()
    """With spreads: ranks of the attempt that gave none for some seconds, the longest first."""


class RanksDumped(Event, frozen=True, kw_only=True):
    """Ranks that make no progress: the stacks of their threads, and their collectives."""

    run_id: str
    attempt: int
    dumps: tuple[Dump, ...] = ()
    stacks: tuple[Stack, ...] = ()
    groups: tuple[ProcessGroup, ...] = ()
    silent: tuple[int, ...] = ()
    """Ranks of the attempt whose process sends nothing at all."""


class PhaseEntered(Event, frozen=True, kw_only=True):
    """An attempt is in another phase since `at_s`."""

    run_id: str
    attempt: int
    """The attempt that it belongs to, which may not have started: then the one to come."""
    phase: Phase


class MetricsReported(Event, frozen=True, kw_only=True):
    """What the job gave to `ray.train.report`, the mean over the ranks that gave a number."""

    run_id: str
    attempt: int
    metrics: dict[str, float] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    ranks: tuple[RankMetrics, ...] = ()
    """By rank; of a large world, a few."""


class TrialsListed(Event, frozen=True, kw_only=True):
    """Trials that are new or changed. One that is left out is as it was."""

    experiment: str
    trials: tuple[Trial, ...]
    metric: str = ""
    """What the experiment optimises, where it says so."""
    mode: str = ""
    """`min` or `max`."""


class HistoryLoaded(Event, frozen=True, kw_only=True):
    """Points of a run's curve from before it was watched. `metric`: a field of `RankSample`."""

    run_id: str
    metric: str
    times: tuple[float, ...]
    """Unix seconds, ascending."""
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.times) != len(self.values):
            raise ValueError(f"{len(self.times)} times of {len(self.values)} values")


class GpuActivityListed(Event, frozen=True, kw_only=True):
    """What DCGM measures of the GPUs."""

    gpus: tuple[GpuActivity, ...]


class TrackedRunsListed(Event, frozen=True, kw_only=True):
    """The runs of an experiment tracker (MLflow) that belong to what is watched."""

    runs: tuple[TrackedRun, ...]


class AlertRaised(Event, frozen=True, kw_only=True):
    """Raised, or raised before and now with another text or severity."""

    alert: Alert


class AlertCleared(Event, frozen=True, kw_only=True):
    """What it warned of is over."""

    alert_id: str


class AlertHandled(Event, frozen=True, kw_only=True):
    """A user has seen it (`snoozed_until_s` None) or does not want to hear of it until then."""

    alert_id: str
    snoozed_until_s: float | None = None


class LogLines(Event, frozen=True, kw_only=True):
    """Lines of one log, in order, each once; control sequences already removed."""

    stream: str
    """`job:ID` or `pod:NAME`."""
    lines: tuple[str, ...]


class MemoryKillsListed(Event, frozen=True, kw_only=True):
    """The workers that Ray's memory monitor has killed, on any node, the newest first."""

    kills: tuple[MemoryKill, ...]


class LogExcerpted(Event, frozen=True, kw_only=True):
    """Lines of one log around the end of a job or an attempt."""

    job_id: str
    log: str
    """`driver log`, `log of rank 1`."""
    lines: tuple[str, ...]
    run_id: str = ""
    attempt: int = 0
    """0: of the job."""
    rank: int | None = None


class DrillInjected(Event, frozen=True, kw_only=True):
    drill: Drill


class DrillStaged(Event, frozen=True, kw_only=True):
    """A drill has come to another stage."""

    drill_id: str
    """Of the record: what is injected has ids of its own."""
    name: str
    stage: Stage
    message: str = ""
    """One line: what is done or waited for."""


class DrillProbed(Event, frozen=True, kw_only=True):
    drill_id: str
    result: ProbeResult


class DrillEnded(Event, frozen=True, kw_only=True):
    record: DrillRecord


class Marked(Event, frozen=True, kw_only=True):
    """The user marked a moment."""

    text: str
