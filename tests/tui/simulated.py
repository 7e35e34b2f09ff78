"""A simulated cluster and run: the same events each time, on a clock that tests set.

`Simulation` is a session over a backend behind the real Protocol. `advance(s)` sets the clock to
that many seconds after the start and dispatches the events up to then, so that a snapshot at a
given time is always the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from msgspec.structs import replace

from cockpit.actions.drills import DrillActions
from cockpit.backends.protocol import Terminal
from cockpit.backends.without_kubernetes import ONLY_KUBERNETES
from cockpit.launch.job import BundledJob
from cockpit.model.cluster import (
    ClusterHealth,
    ClusterRef,
    Gpu,
    Node,
    NodeType,
    Pod,
    PodPhase,
    Resources,
    WorkerGroup,
)
from cockpit.model.drill import Drill
from cockpit.model.error import CockpitError
from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    ClusterSeen,
    DrillInjected,
    Event,
    GroupsListed,
    JobsListed,
    LogLines,
    MetricsReported,
    NodesListed,
    Notice,
    PodsListed,
    RankSampled,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import Checkpoint, Job, JobStatus, Placement, RankSample, RunState
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from tests.jobs_api import JobsApi
from tests.simulated_backend import ScriptedBackend
from tests.sources.fake_dashboard import job
from tests.tui.simulated_jobs import JOBS

START_S = 1_763_712_000.0
"""2025-11-21 08:00:00 UTC."""
RUN, JOB = "run-3f9a", "raysubmit_digits01"
REF = ClusterRef("local", "demo")
STEPS_PER_S = 20
GIB = 1 << 30


class SimulatedActions(DrillActions):
    """The real actions on a scripted backend; Ray's jobs API and the list of jobs are in memory."""

    def __init__(self, session: Session, ray: JobsApi) -> None:
        super().__init__(session)
        self._ray = ray

    def bundled_jobs(self) -> tuple[BundledJob, ...]:
        return JOBS

    def _dashboard(self) -> Dashboard:
        return self._ray.dashboard()


@dataclass(slots=True)
class SimulatedBackend(ScriptedBackend):
    """With `shell`, pods have one: made of the command, rows and columns."""

    shell: Callable[[Sequence[str], int, int], Terminal] | None = None
    fails: CockpitError | None = None
    """Raised when a pod is to be deleted."""

    async def delete_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        if self.fails is not None:
            raise self.fails
        await ScriptedBackend.delete_pod(self, pod, uid=uid, grace_s=grace_s)

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        terminal = ScriptedBackend.attach(self, pod, argv, tty=tty, rows=rows, columns=columns)
        if self.shell is None:
            return await terminal
        terminal.close()
        return self.shell(argv, rows, columns)


class Simulation:
    """A session whose events and clock are turned by hand."""

    def __init__(self, script: Iterable[Event], ref: ClusterRef = REF) -> None:
        self.now_s = START_S
        denied = (
            {} if ref.backend == "kuberay" else dict.fromkeys(ONLY_KUBERNETES, "not Kubernetes")
        )
        self.backend = SimulatedBackend(ref=ref, denied=denied)
        self.session = Session(self.backend, clock=lambda: self.now_s)
        self.ray = JobsApi()
        self.ray.jobs[JOB] = job(JOB)
        self.actions = SimulatedActions(self.session, self.ray)
        self.mute: set[str] = set()
        """Sources whose events no longer arrive."""
        self._script = sorted(script, key=lambda event: event.at_s)
        self._next = 0

    def advance(self, to_s: float) -> None:
        """Let everything that is true by `to_s` seconds after the start be known."""
        self.now_s = START_S + to_s
        while self._next < len(self._script) and self._script[self._next].at_s <= self.now_s:
            event = self._script[self._next]
            if event.source not in self.mute:
                self.session.dispatch(event)
            self._next += 1


def digits(kill_s: float | None = 80.0, until_s: float = 400.0) -> Simulation:
    """Two ranks on two workers; at `kill_s` the pod under rank 1 is killed: 18.5 s to recover."""
    return Simulation(_events(_digits, kill_s, until_s))


def wide(ranks: int = 1000, until_s: float = 60.0) -> Simulation:
    """A run of many ranks, eight GPUs a pod."""
    return Simulation(_events(_wide, ranks, until_s))


@cache
def _events(script: Callable[..., Iterator[Event]], *arguments: float | None) -> tuple[Event, ...]:
    """The events of a script, created once per process and shared by the tests' sessions."""
    return tuple(sorted(script(*arguments), key=lambda event: event.at_s))


def _digits(kill_s: float | None, until_s: float) -> Iterator[Event]:
    head = _pod(0, "head", NodeType.HEAD, ready_s=2)
    one, two = _pod(1, "workers", ready_s=4), _pod(2, "workers", ready_s=5)
    yield _cluster(0, ClusterHealth.STARTING)
    yield _cluster(5, ClusterHealth.READY)
    yield _pods(0, head, replace(one, phase=PodPhase.PENDING, ready=False))
    yield _pods(5, head, one, two)
    yield _notice(2, "Pod", head.name, "Started", "head is up, Ray 2.60.0")
    yield _notice(4, "Pod", one.name, "Started", "raylet joined the cluster")
    yield _notice(5, "Pod", two.name, "Started", "raylet joined the cluster")
    yield from (_groups(at, ready) for at, ready in ((0, 0), (5, 2)))
    yield from _job(until_s)
    yield from _sources(until_s)
    yield from _nodes(until_s, kill_s)
    yield _run(12, RunState.INITIALIZING)
    yield _run(13, RunState.SCHEDULING)
    yield _attempt(16, 1, one, two)
    yield _run(16, RunState.RUNNING)
    end = until_s if kill_s is None else kill_s
    yield from training(17, end, attempt=1, first_step=1)
    if kill_s is None:
        return
    last = int((kill_s - 17) * STEPS_PER_S)
    resume = last - 11
    drill = Drill("drill-1", "pod-kill", two.name, (1,), START_S + kill_s, 0, RUN, 1, last)
    yield DrillInjected(at_s=START_S + kill_s, source="user", drill=drill)
    killed = replace(
        two, phase=PodPhase.FAILED, ready=False, reason="killed by signal 9", ended_s=kill_s
    )
    killed = replace(killed, ended_s=START_S + kill_s + 0.4)
    three = replace(_pod(3, "workers", ready_s=kill_s + 1))
    yield _pods(kill_s + 0.5, head, one, killed)
    yield _groups(kill_s + 0.5, 1)
    yield _cluster(kill_s + 0.5, ClusterHealth.DEGRADED, "1 of 2 workers ready")
    yield _notice(kill_s + 0.4, "Pod", two.name, "Killed", "exit code -9 (SIGKILL)", warning=True)
    pending = replace(three, phase=PodPhase.PENDING, ready=False, reason="raylet is starting")
    yield _pods(kill_s + 1.2, head, one, killed, pending)
    yield _notice(kill_s + 1.2, "WorkerGroup", "workers", "Replaced", f"{three.name} is starting")
    why = "Worker group is unhealthy: rank 1 died with its node"
    yield _run(kill_s + 3.1, RunState.RESTARTING)
    yield AttemptEnded(
        at_s=START_S + kill_s + 3.2, source="telemetry", run_id=RUN, attempt=1, reason=why
    )
    yield _run(kill_s + 3.4, RunState.RESCHEDULING)
    yield _pods(kill_s + 7.5, head, one, killed, three)
    yield _groups(kill_s + 7.5, 2)
    yield _cluster(kill_s + 7.5, ClusterHealth.READY)
    yield _notice(kill_s + 7.5, "Pod", three.name, "Started", "raylet joined the cluster")
    yield _attempt(kill_s + 14, 2, one, three)
    yield _run(kill_s + 14, RunState.RUNNING)
    yield from training(kill_s + 18.5, until_s, attempt=2, first_step=resume)
    yield _pods(kill_s + 30, head, one, three)


def _wide(ranks: int, until_s: float) -> Iterator[Event]:
    head = _pod(0, "head", NodeType.HEAD, ready_s=2)
    workers = [_pod(1 + n, "h200", ready_s=4) for n in range(math.ceil(ranks / 8))]
    yield _cluster(5, ClusterHealth.READY)
    yield _pods(5, head, *workers)
    group = WorkerGroup(
        "h200", len(workers), len(workers), 0, len(workers), Resources(cpus=96, gpus=8)
    )
    yield GroupsListed(at_s=START_S + 5, source="backend", groups=(group,))
    yield _run(12, RunState.RUNNING)
    placements = tuple(
        Placement(rank, f"node-{rank // 8}", workers[rank // 8].ip, 1000 + rank, (rank % 8,))
        for rank in range(ranks)
    )
    yield AttemptStarted(
        at_s=START_S + 16, source="telemetry", run_id=RUN, attempt=1, placements=placements
    )
    for second in range(17, int(until_s) + 1):
        yield SourceHealth(at_s=START_S + second, source="telemetry", ok=True)
        samples = tuple(_gpu_sample(rank, second) for rank in range(ranks))
        yield RankSampled(at_s=START_S + second, source="telemetry", run_id=RUN, samples=samples)


def _gpu_sample(rank: int, second: int) -> RankSample:
    sample = _sample(rank, 1, float(second), (second - 16) * STEPS_PER_S, STEPS_PER_S)
    return replace(
        sample,
        gpu_utilization_percent=90 + 8 * math.sin(rank + second / 7),
        gpu_memory_bytes=int((97 + rank % 8) * GIB),
        gpu_power_w=610 + 40 * math.sin(rank * 3 + second / 5),
        gpu_temperature_c=61 + rank % 8,
    )


def training(start_s: float, end_s: float, *, attempt: int, first_step: int) -> Iterator[Event]:
    step, at_s = first_step - 1, start_s
    while at_s < end_s:
        step += STEPS_PER_S
        samples = tuple(_sample(rank, attempt, at_s, step, STEPS_PER_S) for rank in (0, 1))
        yield RankSampled(at_s=START_S + at_s, source="telemetry", run_id=RUN, samples=samples)
        if (step // STEPS_PER_S) % 10 == 0:
            loss = _loss(step)
            yield MetricsReported(
                at_s=START_S + at_s + 0.1,
                source="telemetry",
                run_id=RUN,
                attempt=attempt,
                metrics={"loss": loss, "accuracy": 1 - loss / 2.6, "epoch": step / 200},
                checkpoint=Checkpoint(step, f"/tmp/digits/checkpoint_{step:06d}"),
            )
        at_s += 1


def _sample(rank: int, attempt: int, at_s: float, step: int, steps: int) -> RankSample:
    wave = math.sin(step / 37 + rank * 1.7)
    return RankSample(
        rank=rank,
        attempt=attempt,
        at_s=START_S + at_s,
        step=step,
        first_step=step - steps + 1,
        steps_total=step,
        epoch=step / 200,
        loss=_loss(step) * (1 + 0.03 * wave),
        samples_per_s=640 + 22 * wave,
        step_time_s=0.05 + 0.002 * wave,
        data_wait_s=0.002 + 0.0005 * wave,
        comm_s=0.009 + 0.001 * wave,
        learning_rate=3e-4,
        grad_norm=1.2 + wave / 5,
        cpu_percent=92 + 6 * wave,
        memory_bytes=int(412e6 + 3e6 * wave),
    )


def _loss(step: int) -> float:
    return 0.06 + 2.24 * math.exp(-step / 520) + 0.02 * math.sin(step / 23)


def _pod(number: int, group: str, kind: NodeType = NodeType.WORKER, *, ready_s: float = 0.0) -> Pod:
    return Pod(
        name="demo-head" if kind is NodeType.HEAD else f"demo-{group}-{number}",
        group=group,
        node_type=kind,
        phase=PodPhase.RUNNING,
        ready=True,
        ip=f"10.0.{number // 200}.{10 + number % 200}",
        created_s=START_S + max(0.0, ready_s - 2),
        host="bastion",
    )


def _pods(at_s: float, *pods: Pod) -> Event:
    return PodsListed(at_s=START_S + at_s, source="backend", pods=pods)


def _groups(at_s: float, ready: int) -> Event:
    group = WorkerGroup("workers", 2, ready, 0, 4, Resources(cpus=1))
    return GroupsListed(at_s=START_S + at_s, source="backend", groups=(group,))


def _cluster(at_s: float, health: ClusterHealth, message: str = "") -> Event:
    return ClusterSeen(
        at_s=START_S + at_s,
        source="backend",
        ref=REF,
        health=health,
        message=message,
        ray_version="2.60.0",
    )


def _notice(
    at_s: float, kind: str, name: str, reason: str, message: str, *, warning: bool = False
) -> Event:
    return Notice(
        at_s=START_S + at_s,
        source="backend",
        kind=kind,
        name=name,
        reason=reason,
        message=message,
        warning=warning,
    )


def _run(at_s: float, state: RunState) -> Event:
    return RunSeen(
        at_s=START_S + at_s,
        source="telemetry",
        run_id=RUN,
        name="digits",
        state=state,
        submission_id=JOB,
        world_size=2,
    )


def _attempt(at_s: float, number: int, *pods: Pod) -> Event:
    placements = tuple(
        Placement(rank, f"node-{pod.name}", pod.ip, 4200 + 10 * number + rank)
        for rank, pod in enumerate(pods)
    )
    return AttemptStarted(
        at_s=START_S + at_s,
        source="telemetry",
        run_id=RUN,
        attempt=number,
        placements=placements,
    )


def _job(until_s: float) -> Iterator[Event]:
    digits_job = Job(
        JOB,
        "python -m training.jobs.digits --epochs 200",
        JobStatus.RUNNING,
        started_s=START_S + 10,
    )
    older = Job(
        "raysubmit_smoke00",
        "python -m training.jobs.digits --epochs 1",
        JobStatus.SUCCEEDED,
        "Job finished successfully.",
        started_s=START_S - 300,
        ended_s=START_S - 240,
    )
    yield JobsListed(at_s=START_S + 10, source="ray", jobs=(digits_job, older))
    for second in range(12, int(until_s)):
        line = f"INFO train: epoch {second // 10} batch {second % 10} loss {_loss(second * 20):.4f}"
        if second % 25 == 0:
            line = f"WARNING checkpoint: saved late by {second % 7} s"
        yield LogLines(
            at_s=START_S + second, source="logs", stream=f"job:{JOB}", lines=(f"{second} {line}",)
        )


def _sources(until_s: float) -> Iterator[Event]:
    for second in range(int(until_s)):
        for name in ("backend", "ray", "telemetry"):
            yield SourceHealth(at_s=START_S + second, source=name, ok=True)


def _nodes(until_s: float, kill_s: float | None, gpus: tuple[Gpu, ...] = ()) -> Iterator[Event]:
    for second in range(3, int(until_s), 2):
        nodes = []
        for number in (0, 1, 2, 3):
            replaced = kill_s is not None and second > kill_s
            if (number == 2 and replaced) or (number == 3 and not (replaced and second > 87)):
                continue
            pod = _pod(number, "workers" if number else "head")
            nodes.append(
                Node(
                    f"node-{number}",
                    pod.ip,
                    "bastion",
                    is_head=number == 0,
                    alive=True,
                    cpu_percent=(12 if number == 0 else 46) + 3 * math.sin(second / 5 + number),
                    memory_used_bytes=int((1.1 + 0.4 * number) * GIB),
                    memory_total_bytes=8 * GIB,
                    gpus=gpus,
                )
            )
        yield NodesListed(at_s=START_S + second, source="ray", nodes=tuple(nodes))
