"""A short run as events, for tests of what reads them: 2 ranks, a kill at 100.0, attempt 2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cockpit.model.cluster import ClusterHealth, ClusterRef, NodeType, Pod, PodPhase
from cockpit.model.drill import Drill
from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    ClusterSeen,
    DrillInjected,
    Event,
    PodsListed,
    RankSampled,
    RunSeen,
)
from cockpit.model.run import Placement, RankSample, RunState
from cockpit.model.tracking import RunRef, Runs
from cockpit.store.store import Store

REF = ClusterRef("local", "t")
RUN = "run-1"


def pod(
    name: str,
    ip: str,
    *,
    phase: PodPhase = PodPhase.RUNNING,
    node_type: NodeType = NodeType.WORKER,
    ended_s: float | None = None,
) -> Pod:
    group = "headgroup" if node_type is NodeType.HEAD else "workers"
    return Pod(
        name, group, node_type, phase, phase is PodPhase.RUNNING, ip, 1.0, ended_s, host="here"
    )


HEAD = pod("t-head-a", "127.0.1.1", node_type=NodeType.HEAD)
ONE, TWO = pod("t-workers-1", "127.0.1.2"), pod("t-workers-2", "127.0.1.3")
THREE = pod("t-workers-3", "127.0.1.4")
DRILL = Drill("d1", "pod-kill", TWO.name, (1,), 100.0, 0.0, RUN, 1, 50)


def sample(rank: int, attempt: int, at_s: float, first: int, last: int) -> RankSample:
    return RankSample(
        rank,
        attempt,
        at_s,
        last,
        first,
        last,
        loss=2.0 / last,
        samples_per_s=100.0,
        step_time_s=0.02,
    )


def tick(attempt: int, at_s: float, first: int, last: int, ranks: int = 2) -> RankSampled:
    samples = tuple(sample(rank, attempt, at_s, first, last) for rank in range(ranks))
    return RankSampled(at_s=at_s, source="telemetry", run_id=RUN, samples=samples)


def pods(at_s: float, *listed: Pod) -> PodsListed:
    return PodsListed(at_s=at_s, source="backend", pods=listed)


def run_seen(at_s: float, state: RunState) -> RunSeen:
    return RunSeen(
        at_s=at_s, source="telemetry", run_id=RUN, name="demo", state=state, world_size=2
    )


def started(at_s: float, attempt: int, *on: Pod) -> AttemptStarted:
    placed = tuple(Placement(rank, f"n{rank}", pod.ip, 100 + rank) for rank, pod in enumerate(on))
    return AttemptStarted(
        at_s=at_s, source="telemetry", run_id=RUN, attempt=attempt, placements=placed
    )


def before_the_kill() -> list[Event]:
    return [
        ClusterSeen(at_s=1.0, source="backend", ref=REF, health=ClusterHealth.READY),
        pods(1.0, HEAD, ONE, TWO),
        run_seen(80.0, RunState.INITIALIZING),
        run_seen(85.0, RunState.SCHEDULING),
        started(90.0, 1, ONE, TWO),
        run_seen(90.0, RunState.RUNNING),
        tick(1, 95.0, 1, 25),
        tick(1, 99.0, 26, 50),
    ]


def the_recovery() -> list[Event]:
    dead = pod(TWO.name, TWO.ip, phase=PodPhase.FAILED, ended_s=100.1)
    return [
        DrillInjected(at_s=100.0, source="user", drill=DRILL),
        pods(100.2, HEAD, ONE, dead),
        tick(1, 100.5, 51, 52, ranks=1),
        AttemptEnded(
            at_s=106.6, source="telemetry", run_id=RUN, attempt=1, reason="node 127.0.1.3 died"
        ),
        run_seen(106.7, RunState.RESTARTING),
        pods(108.0, HEAD, ONE, THREE),
        started(114.0, 2, ONE, THREE),
        run_seen(114.0, RunState.RUNNING),
        tick(2, 118.5, 41, 45),
    ]


def reduced(events: Iterable[Event]) -> Store:
    store = Store()
    for event in events:
        store.apply(event)
    return store


def watched_runs(*runs: RunRef) -> Runs:
    """Return these from a source's callback."""

    async def known() -> Sequence[RunRef]:
        return runs

    return known
