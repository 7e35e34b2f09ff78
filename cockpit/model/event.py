"""All events: what was true, when, and which source reported it.

A source yields events, the store reduces them, and recordings are files of them. An event that
lists (`PodsListed`, …) replaces everything of its kind that the same source reported before.
"""

from __future__ import annotations

from msgspec import Struct, field

from cockpit.model.alert import Alert, PastAlert
from cockpit.model.cluster import (
    ClusterHealth,
    ClusterRef,
    ClusterSummary,
    KubernetesNode,
    Node,
    Pod,
    PodTraffic,
    WorkerGroup,
)
from cockpit.model.death import MemoryKill
from cockpit.model.drill import Drill, DrillRecord, ProbeResult, Stage
from cockpit.model.error import CockpitError
from cockpit.model.hang import Dump, ProcessGroup, Stack
from cockpit.model.run import (
    Checkpoint,
    Heal,
    Job,
    Phase,
    Placement,
    RankMetrics,
    RankSample,
    RunState,
    Spread,
    Trial,
)
from cockpit.model.serve import Deployment, ServeLoad
from cockpit.model.text import one_line
from cockpit.model.tracking import GpuActivity, TrackedRun
from cockpit.model.waiting import ClaimState, QueueEntry


class Event(Struct, frozen=True, kw_only=True):
    """The fields that all events have."""

    at_s: float
    """When it was true, by the clock of the reporting source."""
    source: str
    """`backend`, `ray`, `telemetry`, `logs`, `user`, …"""


class SourceHealth(Event, frozen=True, kw_only=True):
    """The state of a source: `ok` after a successful poll or read, the reason after a failure."""

    ok: bool
    error: str = ""
    retry_at_s: float | None = None
    absent: bool = False
    """Absent, not broken: no telemetry file yet, or no Prometheus configured."""


def source_health(
    at_s: float, source: str, error: CockpitError | None = None, retry_at_s: float | None = None
) -> SourceHealth:
    """The state of a source after a read: ok without an error, else its text in one line."""
    return SourceHealth(
        at_s=at_s,
        source=source,
        ok=error is None,
        error=one_line(str(error)) if error else "",
        retry_at_s=retry_at_s,
    )


class ClusterSeen(Event, frozen=True, kw_only=True):
    ref: ClusterRef
    health: ClusterHealth
    message: str = ""
    ray_version: str = ""
    uid: str = ""
    """Unlike the name, never reused for another cluster; empty if there are no UIDs."""
    queue: str = ""
    """The LocalQueue of Kueue that its label names: Kueue suspends it until it is admitted."""


class GroupsListed(Event, frozen=True, kw_only=True):
    groups: tuple[WorkerGroup, ...]


class PodsListed(Event, frozen=True, kw_only=True):
    pods: tuple[Pod, ...]
    more: bool = False
    """The first list is still arriving by pages: a pod that is missing was not deleted."""


class NodesListed(Event, frozen=True, kw_only=True):
    nodes: tuple[Node, ...]


class KubernetesNodesListed(Event, frozen=True, kw_only=True, rename={"nodes": "machines"}):
    nodes: tuple[KubernetesNode, ...]


class ClustersListed(Event, frozen=True, kw_only=True):
    """All RayClusters that are visible in one context; the source is `context:NAME`."""

    context: str
    clusters: tuple[ClusterSummary, ...]


class JobsListed(Event, frozen=True, kw_only=True):
    """The jobs as Ray lists them (source `ray`), or as RayJobs (source `backend`)."""

    jobs: tuple[Job, ...]


class QueuesListed(Event, frozen=True, kw_only=True):
    """What the cluster, its RayJobs and its pods wait for in the queues of Kueue and Volcano."""

    entries: tuple[QueueEntry, ...] = ()
    claims: tuple[ClaimState, ...] = ()
    """Of pods that wait for volumes."""
    missing: tuple[str, ...] = ()
    """Permissions that are missing, in one line each."""


class Notice(Event, frozen=True, kw_only=True):
    """One line about an object, like a Kubernetes Event."""

    kind: str
    """`Pod`, `WorkerGroup`, `Job`, `Run`, `Cluster`."""
    name: str
    reason: str
    """In CamelCase, as Kubernetes writes it: `Killed`, `Started`, `Scaled`."""
    message: str
    warning: bool = False


class RunSeen(Event, frozen=True, kw_only=True):
    """A run started, or changed its state."""

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
    """Permitted restarts, from Ray Train's FailureConfig; -1: unlimited, None: not reported."""


class AttemptStarted(Event, frozen=True, kw_only=True):
    """A worker group has started: the ranks have processes."""

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
    """The budget it was charged to: `max_failures`, `max_preemption_failures`, …; `none` if the end
    is not charged, empty if not reported.
    """


class RanksReplaced(Event, frozen=True, kw_only=True):
    """Ranks have new processes within an attempt; the others continue."""

    run_id: str
    attempt: int
    placements: tuple[Placement, ...]


class QuorumFormed(Event, frozen=True, kw_only=True):
    """The replicas that take part in the next steps, of a run that continues without lost ones."""

    run_id: str
    attempt: int
    number: int
    """Counted from 1."""
    replicas: int
    """The number of replicas of the run."""
    members: tuple[int, ...] = ()
    """The ranks of those that take part."""
    step: int = 0
    """The last step that was committed before."""
    heals: tuple[Heal, ...] = ()


class RankSampled(Event, frozen=True, kw_only=True):
    """One tick. For a large world: some ranks, which alternate, and spreads over all ranks."""

    run_id: str
    samples: tuple[RankSample, ...]
    spreads: tuple[Spread, ...] = ()
    attempt: int = 0
    """The attempt of the spreads."""
    reporting: int | None = None
    """With spreads: the number of ranks that sent a sample since the last tick."""
    silent: tuple[int, ...] = ()
    """With spreads: ranks of the attempt that sent none for some seconds, the longest first."""


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
    """An attempt entered another phase at `at_s`."""

    run_id: str
    attempt: int
    """The attempt of the phase; it may not have started yet."""
    phase: Phase


class MetricsReported(Event, frozen=True, kw_only=True):
    """The metrics of `ray.train.report`: the mean over the ranks that reported a number."""

    run_id: str
    attempt: int
    metrics: dict[str, float] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    ranks: tuple[RankMetrics, ...] = ()
    """By rank; for a large world, some ranks only."""


class TrialsListed(Event, frozen=True, kw_only=True):
    """Trials that are new or changed. An omitted trial is unchanged."""

    experiment: str
    trials: tuple[Trial, ...]
    metric: str = ""
    """The metric that the experiment optimises, if reported."""
    mode: str = ""
    """`min` or `max`."""


class HistoryLoaded(Event, frozen=True, kw_only=True):
    """Points of a run's curve from before the session. `metric`: a field of `RankSample`."""

    run_id: str
    metric: str
    times: tuple[float, ...]
    """Unix seconds, ascending."""
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.times) != len(self.values):
            raise ValueError(f"{len(self.times)} times of {len(self.values)} values")


class GpuActivityListed(Event, frozen=True, kw_only=True):
    """DCGM's measurements of the GPUs."""

    gpus: tuple[GpuActivity, ...]


class PodTrafficListed(Event, frozen=True, kw_only=True):
    """The traffic of pods whose Ray nodes report none."""

    pods: tuple[PodTraffic, ...]


class TrackedRunsListed(Event, frozen=True, kw_only=True):
    """The runs of an experiment tracker (MLflow) that belong to the watched runs."""

    runs: tuple[TrackedRun, ...]


class ServeListed(Event, frozen=True, kw_only=True):
    """The deployments of all applications of Ray Serve; empty when Serve does not run."""

    deployments: tuple[Deployment, ...]


class ServeMeasured(Event, frozen=True, kw_only=True):
    """The requests of the deployments of Ray Serve."""

    loads: tuple[ServeLoad, ...]


class AlertRaised(Event, frozen=True, kw_only=True):
    """Raised, or raised before and changed in text or severity."""

    alert: Alert


class AlertCleared(Event, frozen=True, kw_only=True):
    """The condition of the alert has ended."""

    alert_id: str


class PastAlertsLoaded(Event, frozen=True, kw_only=True):
    """Alerts of a run that were raised and cleared before the session, in order of their end."""

    run_id: str
    alerts: tuple[PastAlert, ...]


class AlertHandled(Event, frozen=True, kw_only=True):
    """A user acknowledged the alert (`snoozed_until_s` None) or snoozed it until then."""

    alert_id: str
    snoozed_until_s: float | None = None


class LogLines(Event, frozen=True, kw_only=True):
    """Lines of one log, in order, each once; control sequences are already removed."""

    stream: str
    """`job:ID` or `pod:NAME`."""
    lines: tuple[str, ...]


class MemoryKillsListed(Event, frozen=True, kw_only=True):
    """The workers that Ray's memory monitor killed, on any node, the newest first."""

    kills: tuple[MemoryKill, ...]


class LogExcerpted(Event, frozen=True, kw_only=True):
    """Lines of one log around the end of a job or an attempt."""

    job_id: str
    log: str
    """`driver log`, `log of rank 1`."""
    lines: tuple[str, ...]
    run_id: str = ""
    attempt: int = 0
    """0: the job."""
    rank: int | None = None


class DrillInjected(Event, frozen=True, kw_only=True):
    drill: Drill


class DrillStaged(Event, frozen=True, kw_only=True):
    """A drill entered another stage."""

    drill_id: str
    """The id of the record; the injected faults have ids of their own."""
    name: str
    stage: Stage
    message: str = ""
    """One line: the current action or wait."""


class DrillProbed(Event, frozen=True, kw_only=True):
    drill_id: str
    result: ProbeResult


class DrillEnded(Event, frozen=True, kw_only=True):
    record: DrillRecord


class Marked(Event, frozen=True, kw_only=True):
    """The user marked a moment."""

    text: str
