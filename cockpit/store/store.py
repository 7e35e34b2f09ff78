"""The reducer: events in, the present out."""

from __future__ import annotations

from collections import deque
from sys import intern

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.model.alert import Alert, PastAlert
from cockpit.model.cluster import (
    ClusterHealth,
    ClusterRef,
    ClusterSummary,
    KubernetesNode,
    Node,
    Pod,
    PodPhase,
    PodTraffic,
    WorkerGroup,
)
from cockpit.model.death import MemoryKill
from cockpit.model.drill import Drill
from cockpit.model.event import (
    AlertCleared,
    AlertHandled,
    AlertRaised,
    AttemptEnded,
    AttemptStarted,
    ClusterSeen,
    ClustersListed,
    DrillEnded,
    DrillInjected,
    DrillProbed,
    DrillStaged,
    Event,
    GpuActivityListed,
    GroupsListed,
    HistoryLoaded,
    JobsListed,
    KubernetesNodesListed,
    LogExcerpted,
    LogLines,
    Marked,
    MemoryKillsListed,
    MetricsReported,
    NodesListed,
    Notice,
    PastAlertsLoaded,
    PhaseEntered,
    PodsListed,
    PodTrafficListed,
    QueuesListed,
    QuorumFormed,
    RankSampled,
    RanksDumped,
    RanksReplaced,
    RunSeen,
    ServeListed,
    ServeMeasured,
    SourceHealth,
    TrackedRunsListed,
    TrialsListed,
)
from cockpit.model.run import Job, JobStatus, RunState, Trial
from cockpit.model.serve import Deployment, ServeLoad
from cockpit.model.text import one_line
from cockpit.model.tracking import GpuActivity, TrackedRun
from cockpit.store.drill import DrillView
from cockpit.store.excerpt import Excerpt
from cockpit.store.gpus import of_placement
from cockpit.store.history import Past
from cockpit.store.job_end import ENDED_WITH_JOB
from cockpit.store.run import RunView
from cockpit.store.series import Series

NOTICES_KEPT = 1_000
LOG_LINES_KEPT = 20_000
DRILLS_KEPT = 100
REMOVED_KEPT = 500
MARKS_KEPT = 200
ALERTS_KEPT = 500
LATER_S = 60.0
"""How much later than cockpit another system raises or clears the same alert."""
EXCERPTS_KEPT = 200
RUNS_IN_DETAIL = 2
"""Runs that are over with all their points; the curves of older ones are downsampled."""
RUNS_WHOLE = 100
"""Runs that are over with curves at all; of older ones a row is left."""
RUNS_KEPT = 500
TRIAL_POINTS = 240
"""Points of the curve of each trial of an experiment."""
NO_QUEUES = QueuesListed(at_s=0.0, source="")


class SourceState(Struct, frozen=True):
    """The state of a source. `ok_s`: when it last reported OK."""

    name: str
    ok: bool = False
    ok_s: float | None = None
    error: str = ""
    retry_at_s: float | None = None
    absent: bool = False


class LogBuffer(Struct):
    """The newest lines of one log; `first` is the number (from 0) of `lines[0]` in the log."""

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES_KEPT))
    total: int = 0

    @property
    def first(self) -> int:
        return self.total - len(self.lines)


class AlertView(Struct):
    """An alert, and what became of it."""

    alert: Alert
    acknowledged_s: float | None = None
    snoozed_until_s: float | None = None
    cleared_s: float | None = None

    def is_same(self, past: PastAlert) -> bool:
        """Whether another system recorded this alert, which it may raise and clear later."""
        return (
            self.alert.id == past.alert.id
            and self.alert.raised_s <= past.cleared_s + LATER_S
            and (self.cleared_s is None or past.alert.raised_s <= self.cleared_s + LATER_S)
        )


class Experiment(Struct):
    """The trials of one Ray Tune experiment."""

    name: str
    metric: str = ""
    mode: str = ""
    trials: dict[str, Trial] = field(default_factory=dict)
    curves: dict[str, Series] = field(default_factory=dict)
    """By trial: the metric that is optimised, a point a result."""


class Store(Struct):
    """All that is known. Only `apply` changes it; views read it between two calls of `apply`."""

    ref: ClusterRef | None = None
    health: ClusterHealth = ClusterHealth.UNKNOWN
    health_message: str = ""
    ray_version: str = ""
    uid: str = ""
    """The UID of the cluster, which changes when it is deleted and created again with its name."""
    queue: str = ""
    """The LocalQueue of Kueue that the label of the cluster names."""
    queues: QueuesListed = NO_QUEUES
    groups: dict[str, WorkerGroup] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    removed_pods: dict[str, float] = field(default_factory=dict)
    """When a pod was first seen failed or missing."""
    ready_counts: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=500))
    """How many worker pods were ready, at each change of that number."""
    past: Past = field(default_factory=Past)
    pods_complete: bool = True
    """False until the first list of pods is complete."""
    nodes: dict[str, Node] = field(default_factory=dict)
    kubernetes_nodes: dict[str, KubernetesNode] = field(default_factory=dict)
    fleet: dict[str, tuple[ClusterSummary, ...]] = field(default_factory=dict)
    """All clusters by context, where several are watched at once."""
    jobs: dict[str, Job] = field(default_factory=dict)
    jobs_by_source: dict[str, tuple[Job, ...]] = field(default_factory=dict)
    rayjobs: dict[str, str] = field(default_factory=dict)
    """By submission id, also those of earlier tries: the UID of the RayJob."""
    runs: dict[str, RunView] = field(default_factory=dict)
    ended_runs: dict[str, None] = field(default_factory=dict)
    """Those that are over and not thinned, in the order of their ends."""
    experiments: dict[str, Experiment] = field(default_factory=dict)
    tracked: dict[str, TrackedRun] = field(default_factory=dict)
    """MLflow's runs, by their id there."""
    gpu_activity: tuple[GpuActivity, ...] = ()
    pod_traffic: dict[str, PodTraffic] = field(default_factory=dict)
    """By pod, of those whose Ray nodes report no traffic."""
    deployments: dict[str, Deployment] = field(default_factory=dict)
    """Those of Ray Serve, by `Deployment.key`."""
    serve_loads: dict[str, ServeLoad] = field(default_factory=dict)
    """By the same key."""
    alerts: dict[str, AlertView] = field(default_factory=dict)
    """Active alerts, by id."""
    alerts_past: deque[AlertView] = field(default_factory=lambda: deque(maxlen=ALERTS_KEPT))
    sources: dict[str, SourceState] = field(default_factory=dict)
    notices: deque[Notice] = field(default_factory=deque)
    """The newest, each once."""
    known_notices: set[Notice] = field(default_factory=set)
    """Those of `notices`, to find one that is listed again."""
    logs: dict[str, LogBuffer] = field(default_factory=dict)
    memory_kills: tuple[MemoryKill, ...] = ()
    """Workers that Ray's memory monitor has killed, the newest first."""
    excerpts: dict[tuple[str, int], dict[str, Excerpt]] = field(default_factory=dict)
    """By run (else job) and attempt, then by log: lines around an end."""
    drills: deque[Drill] = field(default_factory=lambda: deque(maxlen=DRILLS_KEPT))
    drilling: dict[str, DrillView] = field(default_factory=dict)
    """Drills by the id of their record, as far as they have got; the newest last."""
    marks: deque[Marked] = field(default_factory=lambda: deque(maxlen=MARKS_KEPT))
    version: int = 0
    """Counts events: a view that has drawn this version has nothing to do."""

    def apply(self, event: Event) -> None:
        """Take one event. Unknown kinds are ignored, so that old readers take new recordings."""
        self.version += 1
        match event:
            case RankSampled():
                run = self._run(event.run_id)
                if run.is_thinned:
                    pass  # its stream is read again
                elif event.spreads:
                    run.take_spreads(event)
                else:
                    run.take(event.samples)
            case SourceHealth():
                self.past.take_health(event)
                self._source(event)
                if event.source == "ray" and event.ok:
                    self._end_lost_jobs(event.at_s)
            case PodsListed():
                self.past.take_pods(event)
                self._pods(event)
            case GroupsListed():
                self.groups = {group.name: group for group in event.groups}
            case NodesListed():
                self.past.take_nodes(self.nodes, event)
                self.nodes = {node.id: node for node in event.nodes}
            case KubernetesNodesListed():
                self.past.take_kubernetes_nodes(self.kubernetes_nodes, event)
                self.kubernetes_nodes = {node.name: node for node in event.nodes}
            case ClustersListed():
                self.fleet[event.context] = event.clusters
            case JobsListed():
                self._jobs(event)
            case ClusterSeen():
                self.ref, self.health = event.ref, event.health
                self.health_message = event.message
                self.ray_version = event.ray_version or self.ray_version
                self.uid = event.uid or self.uid
                self.queue = event.queue
            case QueuesListed():
                self.queues = event
            case Notice():
                self._noticed(event)
            case LogLines():
                log = self.logs.setdefault(event.stream, LogBuffer())
                log.lines.extend(event.lines)
                log.total += len(event.lines)
            case RunSeen():
                self._run_seen(event)
            case AttemptStarted():
                self._attempt_started(event)
            case RanksReplaced():
                self._ranks_replaced(event)
            case QuorumFormed():
                self._run(event.run_id).take_quorum(event)
            case AttemptEnded():
                attempt = self._run(event.run_id).attempt_view(event.attempt)
                attempt.ended_s, attempt.reason = event.at_s, event.reason
                attempt.budget = event.budget or attempt.budget
            case RanksDumped():
                run = self._run(event.run_id)
                # The attempt of a dump that is wrong, and higher, would hide those of later ones.
                if event.attempt in run.attempts and not run.is_thinned:
                    run.hang.take(event)
            case PhaseEntered():
                run = self._run(event.run_id)
                run.enter_phase(event.at_s, event.attempt, event.phase)
            case MetricsReported():
                run = self._run(event.run_id)
                if run.is_thinned:
                    return
                run.take_report(event)
                if (of := run.attempts.get(event.attempt)) is not None and of.reported_s is None:
                    of.reported_s = event.at_s
            case TrialsListed():
                self._trials(event)
            case HistoryLoaded():
                points = zip(event.times, event.values, strict=True)
                self._run(event.run_id).curves.open(event.metric).prepend(points)
            case GpuActivityListed():
                self._gpu_activity(event)
            case PodTrafficListed():
                self.pod_traffic = {found.pod: found for found in event.pods}
            case TrackedRunsListed():
                self.tracked = {run.id: run for run in event.runs}
            case ServeListed():
                self.deployments = {found.key: found for found in event.deployments}
            case ServeMeasured():
                self.serve_loads = {load.key: load for load in event.loads}
            case AlertRaised():
                self.alerts.setdefault(event.alert.id, AlertView(event.alert)).alert = event.alert
            case AlertCleared():
                self._alert_cleared(event)
            case PastAlertsLoaded():
                self._past_alerts_loaded(event)
            case AlertHandled():
                self._alert_handled(event)
            case MemoryKillsListed():
                self.memory_kills = event.kills
            case LogExcerpted():
                key = (event.run_id or event.job_id, event.attempt)
                self.excerpts.setdefault(key, {})[event.log] = Excerpt.of(event)
                while len(self.excerpts) > EXCERPTS_KEPT:
                    del self.excerpts[next(iter(self.excerpts))]
            case DrillInjected():
                self.drills.append(event.drill)
            case DrillStaged() | DrillProbed() | DrillEnded():
                self._drill(event)
            case Marked():
                self.marks.append(event)
            case _:
                pass

    def _drill(self, event: DrillStaged | DrillProbed | DrillEnded) -> None:
        drill_id = event.record.id if isinstance(event, DrillEnded) else event.drill_id
        self.drilling.setdefault(drill_id, DrillView(drill_id)).take(event)
        while len(self.drilling) > DRILLS_KEPT:
            del self.drilling[next(iter(self.drilling))]

    def _run(self, run_id: str) -> RunView:
        return self.runs.setdefault(run_id, RunView(run_id))

    def _source(self, event: SourceHealth) -> None:
        before = self.sources.get(event.source, SourceState(event.source))
        self.sources[event.source] = replace(
            before,
            ok=event.ok,
            ok_s=event.at_s if event.ok else before.ok_s,
            error=event.error,
            retry_at_s=event.retry_at_s,
            absent=event.absent,
        )

    def _jobs(self, event: JobsListed) -> None:
        """Take Ray's status of a job, and from the backend's list whether a RayJob submitted it."""
        self.jobs_by_source[event.source] = event.jobs
        rayjobs = {job.id: job for job in self.jobs_by_source.get("backend", ())}
        known = self.rayjobs | {job.id: job.rayjob_uid for job in rayjobs.values()}
        uids = {job.rayjob_uid for job in rayjobs.values()}
        self.rayjobs = {job_id: uid for job_id, uid in known.items() if uid in uids}
        jobs: dict[str, Job] = {}
        for source, listed in self.jobs_by_source.items():
            if source != "backend":
                for job in listed:
                    made_by = rayjobs.pop(job.id, None)
                    jobs[job.id] = job if made_by is None else _of_rayjob(job, made_by)
        self.jobs = {**rayjobs, **jobs}
        for run in list(self.runs.values()):
            self._end_with_job(run, event.at_s)
        if event.source == "ray":
            self._end_lost_jobs(event.at_s)

    def _end_lost_jobs(self, at_s: float) -> None:
        """End the runs whose job Ray listed before and does not now, or that was deleted.

        Called for health events too: a recording has a list of jobs only where it changes.
        """
        for run in list(self.runs.values()):
            if run.state.is_over:
                continue
            is_listed = run.submission_id in self.jobs
            entered_s = run.states[-1][0] if run.states else at_s
            lost = run.job_listing.update(at_s, run.submission_id, entered_s, is_listed=is_listed)
            if lost is not None:
                self._end(run, lost.since_s, lost.state, lost.status, lost.message)

    def _pods(self, event: PodsListed) -> None:
        pods = {pod.name: pod for pod in event.pods}
        self.pods_complete = not event.more
        if not event.more:
            for name in self.pods.keys() - pods.keys():
                self.removed_pods.setdefault(name, event.at_s)
        for pod in event.pods:
            if pod.phase is PodPhase.FAILED:
                self.removed_pods.setdefault(pod.name, pod.ended_s or event.at_s)
        while len(self.removed_pods) > REMOVED_KEPT:
            del self.removed_pods[next(iter(self.removed_pods))]
        self.pods = pods
        if event.more:
            return
        ready = sum(pod.ready for pod in event.pods if pod.node_type == "worker")
        if not self.ready_counts or self.ready_counts[-1][1] != ready:
            self.ready_counts.append((event.at_s, ready))

    def _gpu_activity(self, event: GpuActivityListed) -> None:
        self.gpu_activity = event.gpus
        pods, nodes = list(self.pods.values()), list(self.nodes.values())
        namespace = self.ref.namespace if self.ref else ""
        for run in self.runs.values():
            if run.state.is_over or run.is_thinned:
                continue
            of = {
                number: gpu
                for number, rank in run.ranks.items()
                if rank.placement is not None and rank.placement.gpus and event.gpus
                and (gpu := of_placement(rank.placement, event.gpus, pods, nodes, namespace))
            }  # fmt: skip
            run.take_activity(event.at_s, of)

    def _noticed(self, event: Notice) -> None:
        """Each once: a process that continues the recording of another one lists them again."""
        notice = _sharing_names(event)
        if notice in self.known_notices:
            return
        if len(self.notices) == NOTICES_KEPT:
            self.known_notices.discard(self.notices.popleft())
        self.known_notices.add(notice)
        self.notices.append(notice)

    def _run_seen(self, event: RunSeen) -> None:
        run = self._run(event.run_id)
        other = bool(run.job_id and event.job_id) and event.job_id != run.job_id
        if other and run.states and event.at_s < run.states[-1][0]:
            # Two drivers of one run have a stream each, and the older one's may be read later.
            run.name = run.name or event.name
            run.job_id = run.job_id or event.job_id
            run.submission_id = run.submission_id or event.submission_id
            run.world_size = run.world_size or event.world_size
            return
        run.name = event.name or run.name
        run.job_id = event.job_id or run.job_id
        run.submission_id = event.submission_id or run.submission_id
        run.world_size = event.world_size or run.world_size
        if event.max_failures is not None:
            run.max_failures = event.max_failures
        if event.max_preemption_failures is not None:
            run.max_preemption_failures = event.max_preemption_failures
        # The reasons for a wait or a restart end when the run trains; the attempts keep them.
        kept = "" if event.state is RunState.RUNNING else run.message
        run.message = event.message or kept
        run.enter(event.at_s, event.state)
        self._end_with_job(run, event.at_s)
        if event.state.is_over:
            self._run_ended(run)

    def _run_ended(self, run: RunView) -> None:
        """Keep memory bounded, however many runs a sweep has."""
        is_first_end = run.id not in self.ended_runs
        self.ended_runs[run.id] = None
        run.share_times()
        if is_first_end and len(self.ended_runs) > RUNS_IN_DETAIL:
            older = self.runs.get([*self.ended_runs][-1 - RUNS_IN_DETAIL])
            if older is not None and older.state.is_over:
                older.downsample()
        while len(self.ended_runs) > RUNS_WHOLE:
            oldest = next(iter(self.ended_runs))
            del self.ended_runs[oldest]
            found = self.runs.get(oldest)
            if found is not None and found.state.is_over:  # otherwise its driver was restarted
                found.thin()
        if len(self.runs) > RUNS_KEPT:
            thinned = (each.id for each in self.runs.values() if each.is_thinned)
            if (oldest_thinned := next(thinned, None)) is not None:
                del self.runs[oldest_thinned]

    def _end_with_job(self, run: RunView, at_s: float) -> None:
        """A driver that was stopped or killed does not report how its run ended; its job does."""
        job = self.jobs.get(run.submission_id)
        if job is None or not job.status.is_over or run.state.is_over:
            return
        message = f"its job is {job.status.value}: {one_line(job.message)}"
        state = ENDED_WITH_JOB[job.status]
        self._end(run, job.ended_s or at_s, state, job.status.value.lower(), message)

    def _end(
        self, run: RunView, at_s: float, state: RunState, job_status: str, message: str
    ) -> None:
        ended_s = max(at_s, run.states[-1][0] if run.states else 0.0)
        run.enter(ended_s, state)
        run.message = run.message or message
        if (attempt := run.attempt) is not None and attempt.ended_s is None:
            attempt.ended_s, attempt.reason = ended_s, f"job {job_status}"
        self._run_ended(run)

    def _attempt_started(self, event: AttemptStarted) -> None:
        run = self._run(event.run_id)
        attempt = run.start_attempt(event.attempt)
        attempt.started_s, attempt.placements = event.at_s, event.placements
        run.hang.begin(max(event.attempt, run.hang.attempt))
        run.world_size = len(event.placements) or run.world_size
        hit = [drill.attempt for drill in self.drills if drill.run_id == run.id]
        # The recovery from a drill is measured again whenever it is shown.
        run.forget_places({*hit, *(number + 1 for number in hit)})
        for placement in event.placements:
            run.rank_view(placement.rank).placement = placement
        for removed in run.ranks.keys() - {placement.rank for placement in event.placements}:
            run.ranks[removed].placement = None

    def _ranks_replaced(self, event: RanksReplaced) -> None:
        run = self._run(event.run_id)
        attempt = run.attempt_view(event.attempt)
        new = {placement.rank: placement for placement in event.placements}
        kept = (placed for placed in attempt.placements if placed.rank not in new)
        attempt.placements = tuple(
            sorted((*kept, *new.values()), key=lambda placement: placement.rank)
        )
        for placement in new.values():
            view = run.rank_view(placement.rank)
            # The new process counts its steps from its own start.
            view.placement, view.sample = placement, None

    def _trials(self, event: TrialsListed) -> None:
        experiment = self.experiments.setdefault(event.experiment, Experiment(event.experiment))
        experiment.metric = event.metric or experiment.metric
        experiment.mode = event.mode or experiment.mode
        for trial in event.trials:
            before = experiment.trials.get(trial.id)
            value = trial.metrics.get(experiment.metric)
            if value is not None and (before is None or before.iteration != trial.iteration):
                curve = experiment.curves.setdefault(trial.id, Series(TRIAL_POINTS))
                curve.append(trial.updated_s or event.at_s, value)
            experiment.trials[trial.id] = trial

    def _alert_cleared(self, event: AlertCleared) -> None:
        view = self.alerts.pop(event.alert_id, None)
        if view is not None:
            view.cleared_s = event.at_s
            self.alerts_past.append(view)

    def _past_alerts_loaded(self, event: PastAlertsLoaded) -> None:
        """Add those that no session has raised at that time."""
        known = [*self.alerts.values(), *self.alerts_past]
        new = [
            AlertView(past.alert, cleared_s=past.cleared_s)
            for past in event.alerts
            if not any(view.is_same(past) for view in known)
        ]
        in_order = sorted((*self.alerts_past, *new), key=lambda view: view.cleared_s or 0.0)
        self.alerts_past = deque(in_order, maxlen=ALERTS_KEPT)

    def _alert_handled(self, event: AlertHandled) -> None:
        view = self.alerts.get(event.alert_id)
        if view is not None:
            view.acknowledged_s, view.snoozed_until_s = event.at_s, event.snoozed_until_s


def _of_rayjob(job: Job, rayjob: Job) -> Job:
    """Ray's view of the job with that of its RayJob, which knows whether a failed one is over."""
    undecided = job.status is JobStatus.FAILED and rayjob.retries
    return replace(
        job,
        rayjob=rayjob.rayjob,
        rayjob_uid=rayjob.rayjob_uid,
        deployment=rayjob.deployment,
        submitted=rayjob.submitted,
        cluster=rayjob.cluster,
        retries=rayjob.retries,
        failed=rayjob.failed,
        status=rayjob.status if undecided else job.status,
    )


def _sharing_names(notice: Notice) -> Notice:
    """With one string for each name: a thousand notices are about a few objects."""
    return replace(
        notice,
        source=intern(notice.source),
        kind=intern(notice.kind),
        name=intern(notice.name),
        reason=intern(notice.reason),
    )
