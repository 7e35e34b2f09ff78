"""The verdict on large runs and on hostile text costs little."""

from __future__ import annotations

import time

from cockpit.insight.causes.log_clues import of_lines
from cockpit.insight.causes.rules import match
from cockpit.insight.causes.verdict import causes_of_run
from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    LogExcerpted,
    Notice,
    PodsListed,
    RunSeen,
)
from cockpit.model.run import Placement, RunState
from cockpit.store.store import Store
from tests.causes.corpus import GLOO, RUN, T0

RANKS, ATTEMPTS = 1_000, 3


def large() -> Store:
    """Three attempts of 1,000 ranks on as many pods, with events and the logs of ranks."""
    store = Store()
    ips = [f"10.0.{rank // 250}.{rank % 250}" for rank in range(RANKS)]
    pods = tuple(
        Pod(f"w-{rank}", "gpu", NodeType.WORKER, PodPhase.RUNNING, True, ip)
        for rank, ip in enumerate(ips)
    )
    store.apply(PodsListed(at_s=T0, source="backend", pods=pods))
    store.apply(RunSeen(at_s=T0, source="telemetry", run_id=RUN, name="r", state=RunState.RUNNING))
    placed = tuple(Placement(rank, f"n-{rank}", ip, rank) for rank, ip in enumerate(ips))
    for attempt in range(1, ATTEMPTS + 1):
        at_s = T0 + 100 * attempt
        store.apply(
            AttemptStarted(
                at_s=at_s, source="telemetry", run_id=RUN, attempt=attempt, placements=placed
            )
        )
        for rank in range(300):
            store.apply(
                Notice(
                    at_s=at_s + 49,
                    source="backend",
                    kind="Pod",
                    name=f"w-{rank}",
                    reason="BackOff",
                    message="restarting failed container",
                )
            )
        store.apply(
            LogExcerpted(
                at_s=at_s + 55,
                source="failures",
                job_id="",
                log="log of rank 1",
                lines=("RuntimeError: Connection closed by peer",) * 80,
                run_id=RUN,
                attempt=attempt,
                rank=1,
            )
        )
        ranks = ", ".join(map(str, range(RANKS)))
        store.apply(
            AttemptEnded(
                at_s=at_s + 50,
                source="telemetry",
                run_id=RUN,
                attempt=attempt,
                reason=f"ranks {ranks}: {GLOO}",
            )
        )
    return store


def cpu_s_of(store: Store) -> float:
    began_s = time.thread_time()
    causes_of_run(store, store.runs[RUN], ATTEMPTS)
    return time.thread_time() - began_s


def test_verdict_on_1000_ranks_takes_less_than_200_ms_of_cpu() -> None:
    store = large()
    assert min(cpu_s_of(store) for _ in range(3)) < 0.2


def test_hostile_lines_take_linear_time() -> None:
    hostile = [
        "(" * 100_000,
        "(a" * 50_000 + "pid=",
        "GCS " * 50_000,
        "NET/IB " * 30_000,
        "rank 1, " * 30_000,
        "dataset " * 30_000,
        "Error" * 40_000,
        "DataLoader worker " * 20_000,
    ]
    began_s = time.thread_time()
    assert len(list(of_lines(hostile * 5, "job log", None))) <= 40
    for line in hostile:
        match(line[:2_000])
    assert time.thread_time() - began_s < 2.0
