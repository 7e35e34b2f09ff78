"""A RayCluster on Kubernetes and a fleet of them, on paper: see `tests.tui.simulated`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cockpit.model.cluster import (
    ClusterHealth,
    ClusterRef,
    ClusterSummary,
    DashboardRoute,
    KubernetesNode,
    NodeType,
    Pod,
    PodPhase,
    Resources,
    WorkerGroup,
)
from cockpit.model.event import (
    AttemptStarted,
    ClusterSeen,
    ClustersListed,
    Event,
    GroupsListed,
    JobsListed,
    KubernetesNodesListed,
    Notice,
    PodsListed,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import Job, JobStatus, Placement, RunState
from cockpit.session.session import Session
from tests.simulated_backend import ScriptedBackend
from tests.tui.simulated import GIB, RUN, START_S, Simulation, training

CONTEXT = "arn:aws:eks:eu-central-1:123456789012:cluster/prod-gpu"
REF = ClusterRef("kuberay", "llm-train", "ml-research", CONTEXT)
OTHER = ClusterRef("kuberay", "llm-eval", "ml-research", CONTEXT)
STAGING = ClusterRef("kuberay", "llm-train", "staging", "staging")
DAY_S = 86_400.0
GPUS = 8.0
NO_ROOM = (
    "unschedulable: no node has 8 free GPUs (0/4 nodes are available: 2 Insufficient "
    "nvidia.com/gpu, 1 node(s) were unschedulable, 1 node(s) had untolerated taint "
    "{node.kubernetes.io/unreachable})"
)
CRASHED = (
    "crash loop, exit code 1, 4 restarts: ImportError: libcudnn.so.9: cannot open shared object"
)


def kube(health: ClusterHealth = ClusterHealth.DEGRADED, until_s: float = 120.0) -> Simulation:
    """A head, 2 of 4 workers with GPUs, a replica that spans two hosts; a run on 2 ranks."""
    simulation = Simulation(_kube(health, until_s), REF)
    simulation.backend.route = DashboardRoute("http://127.0.0.1:9", via="service proxy")
    return simulation


def many(pods: int) -> Simulation:
    """That many workers with 8 GPUs each, all ready."""
    return Simulation(_many(pods), REF)


def churned(pods: Sequence[Pod], tick: int, count: int) -> tuple[Pod, ...]:
    """`count` of the pods have changed since the last tick: the same ones are replaced in order."""
    changed = list(pods)
    for n in range(count):
        at = (tick * count + n) * 37 % len(changed)
        pod = changed[at]
        phase = PodPhase.PENDING if pod.phase is PodPhase.RUNNING else PodPhase.RUNNING
        reason = "waits for the head's GCS" if phase is PodPhase.PENDING else ""
        changed[at] = replace(pod, phase=phase, ready=not pod.ready, reason=reason)
    return tuple(changed)


def fleet(now_s: float = START_S) -> Session:
    """Three contexts with clusters, one empty, one that never responded, one that became stale."""
    session = Session(ScriptedBackend(), clock=lambda: now_s)
    for event in _fleet(now_s):
        session.dispatch(event)
    return session


def _fleet(now_s: float) -> Iterator[Event]:
    ready, down = ClusterHealth.READY, ClusterHealth.DOWN
    yield _listed(
        now_s,
        _summary(REF, ClusterHealth.DEGRADED, 6, 4, 48, now_s - 3 * DAY_S, "4 of 6 workers ready"),
        _summary(OTHER, ready, 2, 2, 16, now_s - 5 * 3600, autoscaled=True),
        _summary(
            ClusterRef("kuberay", "nightly", "ci", CONTEXT),
            ClusterHealth.SUSPENDED, 8, 0, 64, now_s - 40 * DAY_S,
        ),
    )  # fmt: skip
    yield _listed(
        now_s,
        _summary(STAGING, ready, 3, 3, 24, now_s - 9 * DAY_S),
        _summary(
            ClusterRef("kuberay", "canary", "staging", "staging"),
            down, 1, 0, 0, now_s - 600, "the head is gone",
        ),
    )  # fmt: skip
    yield _listed(
        now_s - 95,
        _summary(ClusterRef("kuberay", "edge", "default", "on-prem"), ready, 1, 1, 4, now_s - 900),
    )
    yield SourceHealth(at_s=now_s - 95, source="context:on-prem", ok=True)
    why = "connect timed out after 5 s: https://10.20.0.1:6443"
    yield SourceHealth(at_s=now_s, source="context:on-prem", ok=False, error=why)
    yield SourceHealth(
        at_s=now_s, source="context:laptop", ok=False, error="connection refused: 127.0.0.1:6443"
    )
    yield SourceHealth(at_s=now_s, source="context:empty", ok=True)
    yield ClustersListed(at_s=now_s, source="context:empty", context="empty", clusters=())


def _listed(at_s: float, *found: ClusterSummary) -> Event:
    context = found[0].ref.context
    return ClustersListed(
        at_s=at_s, source=f"context:{context}", context=context, clusters=tuple(found)
    )


def _summary(
    ref: ClusterRef,
    health: ClusterHealth,
    desired: int,
    ready: int,
    gpus: float,
    created_s: float,
    message: str = "",
    *,
    autoscaled: bool = False,
) -> ClusterSummary:
    return ClusterSummary(
        ref, health, message, desired, ready, 1, gpus, "2.60.0", created_s, autoscaled
    )


def _kube(health: ClusterHealth, until_s: float) -> Iterator[Event]:
    pods = _pods() if health is not ClusterHealth.SUSPENDED else ()
    message = "4 of 6 workers ready" if pods else "suspended on purpose"
    yield ClusterSeen(
        at_s=START_S,
        source="backend",
        ref=REF,
        health=health,
        message=message,
        ray_version="2.60.0",
    )
    yield GroupsListed(at_s=START_S, source="backend", groups=_groups(bool(pods)))
    yield PodsListed(at_s=START_S, source="backend", pods=pods)
    yield KubernetesNodesListed(at_s=START_S, source="backend", nodes=_nodes())
    yield JobsListed(at_s=START_S, source="backend", jobs=(_rayjob(),))
    yield JobsListed(at_s=START_S, source="ray", jobs=_jobs())
    yield Notice(
        at_s=START_S + 3,
        source="backend",
        kind="Pod",
        name=pods[2].name if pods else REF.name,
        reason="FailedScheduling",
        message="0/4 nodes are available: 2 Insufficient nvidia.com/gpu.",
        warning=True,
    )
    for second in range(int(until_s)):
        for name in ("backend", "ray", "telemetry"):
            yield SourceHealth(at_s=START_S + second, source=name, ok=True)
    if not pods:
        return
    yield RunSeen(
        at_s=START_S + 5,
        source="telemetry",
        run_id=RUN,
        name="llm",
        state=RunState.RUNNING,
        submission_id="llm-sft-x7k2p",
        world_size=2,
    )
    placements = tuple(
        Placement(rank, f"node-{rank}", pod.ip, 900 + rank)
        for rank, pod in enumerate((pods[1], pods[4]))
    )
    yield AttemptStarted(
        at_s=START_S + 6, source="telemetry", run_id=RUN, attempt=1, placements=placements
    )
    yield from training(7, until_s, attempt=1, first_step=1)


def _groups(up: bool) -> tuple[WorkerGroup, ...]:
    held = "queued 3rd in team-a: 12 of 16 GPUs in use" if up else ""
    return (
        WorkerGroup(
            "gpu", 4, 2 if up else 0, 0, 16, Resources(cpus=96, gpus=GPUS),
            autoscaled=True, suspended=not up, note=held,
        ),
        WorkerGroup(
            "slice", 2, 2 if up else 0, 0, 8, Resources(cpus=96, gpus=GPUS), hosts=2,
            suspended=not up,
        ),
    )  # fmt: skip


def _pods() -> tuple[Pod, ...]:
    head = _pod("head-7zq4m", 0, "headgroup", "cpu-pool-1", kind=NodeType.HEAD, gpus=0)
    one = _pod("gpu-worker-4xk9p", 1, "gpu", "gpu-pool-a-1")
    none = _pod("gpu-worker-8bd2w", 2, "gpu", "", reason=NO_ROOM)
    bad = replace(
        _pod("gpu-worker-m5s7t", 3, "gpu", "gpu-pool-a-2", reason=CRASHED),
        phase=PodPhase.RUNNING,
        restarts=4,
    )
    two = _pod("gpu-worker-q1v6z", 4, "gpu", "gpu-pool-a-2")
    hosts = [
        replace(_pod(f"slice-worker-{end}", 5 + n, "slice", f"gpu-pool-b-{n}"), replica="slice-x9")
        for n, end in enumerate(("h7d3k", "j2f8n"))
    ]
    return (head, one, none, bad, two, *hosts)


def _pod(
    name: str,
    number: int,
    group: str,
    host: str,
    *,
    kind: NodeType = NodeType.WORKER,
    gpus: float = GPUS,
    reason: str = "",
) -> Pod:
    return Pod(
        name=f"{REF.name}-{name}",
        group=group,
        node_type=kind,
        phase=PodPhase.PENDING if reason else PodPhase.RUNNING,
        ready=not reason,
        ip="" if reason == NO_ROOM else f"10.42.0.{10 + number}",
        created_s=START_S - 3600 * (number + 1),
        reason=reason,
        host=host,
        gpus=gpus,
    )


def _nodes() -> tuple[KubernetesNode, ...]:
    def node(name: str, number: int, gpus: float = GPUS) -> KubernetesNode:
        return KubernetesNode(
            name,
            ready=True,
            ip=f"10.0.1.{number}",
            version="v1.34.4",
            type="p4d.24xlarge" if gpus else "m5.4xlarge",
            created_s=START_S - 30 * DAY_S,
            cpus=96,
            memory_bytes=1024 * GIB,
            gpus=gpus,
        )

    return (
        node("cpu-pool-1", 1, 0),
        node("gpu-pool-a-1", 2),
        replace(node("gpu-pool-a-2", 3, 16), cordoned=True),
        replace(node("gpu-pool-b-0", 4), reason="memory pressure"),
        replace(node("gpu-pool-b-1", 5), ready=False, reason="kubelet stopped posting status"),
    )


def _rayjob() -> Job:
    return Job(
        "llm-sft-x7k2p",
        "python -m llm.sft --model 8b",
        JobStatus.RUNNING,
        started_s=START_S - 60,
        rayjob="llm-sft",
        deployment="Running",
        submitted=True,
        cluster=REF.name,
    )


def _jobs() -> tuple[Job, ...]:
    plain = Job(
        "raysubmit_smoke00",
        "python smoke.py",
        JobStatus.SUCCEEDED,
        started_s=START_S - 900,
        ended_s=START_S - 800,
    )
    return (replace(_rayjob(), rayjob="", deployment="", cluster=""), plain)


def _many(count: int) -> Iterator[Event]:
    pods = [_pod("head-7zq4m", 0, "headgroup", "cpu-pool-1", kind=NodeType.HEAD, gpus=0)]
    for n in range(1, count + 1):
        name = f"gpu-worker-{n * 7919 % 1_000_003:05x}"
        pod = _pod(name, 1, "gpu", f"gpu-pool-{n // 8:03d}", gpus=1)
        pods.append(
            replace(pod, ip=f"10.{n // 62_500}.{n // 250 % 250}.{n % 250}", created_s=START_S - n)
        )
    yield ClusterSeen(at_s=START_S, source="backend", ref=REF, health=ClusterHealth.READY)
    group = WorkerGroup("gpu", count, count, 0, count, Resources(cpus=12, gpus=1))
    yield GroupsListed(at_s=START_S, source="backend", groups=(group,))
    yield PodsListed(at_s=START_S, source="backend", pods=tuple(pods))
