"""A pod of a run is killed each minute: `python -m tests.bench.kills [MINUTES] [--profiles …]`.

`training.jobs.checkpointed` with 2 ranks on local pods, one of three a spare, under one recovery
profile after the other. Useful are the steps that the run is ahead at the end: steps that are done
again do not count. Each counts the time that it takes in the fastest FASTEST_S of all runs: before
the first kill, the spares are made, and the machine may be slower than later.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from msgspec import Struct

from cockpit.model.cluster import NodeType, Pod
from cockpit.model.error import CockpitError
from cockpit.model.recovery import PROFILES
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.store.store import Store
from tests.bench import recovery
from tests.bench.table import Line, Table, load, say, show

MINUTES = 30
EVERY_S = 60.0
FASTEST_S = 10.0
GOODPUT_PERCENT = 85.0
CASE = recovery.CASES["spare"]


def measure(minutes: int, profiles: Sequence[str]) -> Table:
    began = load()
    runs = [of_profile(name, minutes) for name in profiles]
    step_s = min(run.step_s for run in runs)
    return Table(
        f"A kill a minute, for {minutes} minutes",
        "A run of 2 ranks on three local pods, one of them a spare, under one recovery profile "
        f"after the other. Each {EVERY_S:g} s, the pod of a rank is killed, or another one while "
        "no rank runs. Goodput: the steps that the run is ahead at the end × the time of a step "
        f"in the fastest {FASTEST_S:g} s of all runs ({1000 * step_s:.1f} ms) ÷ the wall time.",
        [line for run in runs for line in lines(run, step_s)],
        began,
    )


class Outcome(Struct, frozen=True):
    profile: str
    kills: int
    took_s: float
    steps: int
    """That the run was ahead at the end."""
    attempts: int
    """That followed the first."""
    step_s: float
    """In the fastest FASTEST_S of the run."""


def lines(run: Outcome, step_s: float) -> Iterator[Line]:
    percent = 100.0 * run.steps * step_s / run.took_s
    promised = run.profile == "fast"
    yield Line(
        f"{run.profile}: goodput, {run.kills} kills in {run.took_s:.0f} s",
        f"{percent:.0f} % ({run.steps:,} steps)",
        f"≥ {GOODPUT_PERCENT:g} %" if promised else "",
        percent >= GOODPUT_PERCENT if promised else None,
    )
    fastest = f"{1000 * run.step_s:.1f} ms"
    yield Line(f"{run.profile}: a step in the fastest {FASTEST_S:g} s", fastest)
    yield Line(f"{run.profile}: attempts that followed", str(run.attempts))


def of_profile(name: str, minutes: int) -> Outcome:
    profile = PROFILES[name]
    with (
        recovery.local(CASE, profile) as (backend, storage),
        builder.session_on(backend) as session,
    ):
        session.call(recovery.launch(backend, CASE, profile, storage))
        recovery.settle(session, CASE, profile, "local")
        run = current_run(session.store)
        assert run is not None
        began_s, first = session.clock(), run.step or 0
        attempts = max(run.attempts)
        seen = [(began_s, first)]
        for number in range(minutes):
            say(f"{name}: kill {number + 1} of {minutes}, at step {newest(session.store)}")
            kill(session, number)
            wait_until(session, began_s + (number + 1) * EVERY_S, seen)
        took_s, ahead = session.clock() - began_s, newest(session.store) - first
        run = current_run(session.store)
        assert run is not None
        restarts = max(run.attempts) - attempts
        return Outcome(name, minutes, took_s, ahead, restarts, fastest_step_s(seen))


def wait_until(session: Session, at_s: float, seen: list[tuple[float, int]]) -> None:
    """Add the time and the newest step to `seen` each second."""
    while (now_s := session.clock()) < at_s:
        session.wait(lambda _: session.clock() >= min(now_s + 1.0, at_s), EVERY_S)
        seen.append((session.clock(), newest(session.store)))


def fastest_step_s(seen: Sequence[tuple[float, int]]) -> float:
    """The time of a step in the FASTEST_S that have the most steps.

    Raises ValueError if no step was made in any.
    """
    found = []
    for began_s, before in seen:
        end = next((item for item in seen if item[0] >= began_s + FASTEST_S), None)
        if end is not None and end[1] > before:
            found.append((end[0] - began_s) / (end[1] - before))
    return min(found)


def newest(store: Store) -> int:
    run = current_run(store)
    return (run.step or 0) if run else 0


def kill(session: Session, number: int) -> None:
    """Kill a pod that has a rank, else any ready worker; the ranks take turns."""
    pods = with_ranks(session.store) or [
        pod for pod in session.store.pods.values() if pod.ready and pod.node_type is NodeType.WORKER
    ]
    if not pods:
        say("no pod is ready: nothing is killed")
        return
    pod = pods[number % len(pods)]
    try:
        session.call(session.backend.delete_pod(pod.name, uid=pod.uid, grace_s=0.0))
    except CockpitError as error:
        say(f"not killed: {error.what}")  # it has ended by now


def with_ranks(store: Store) -> list[Pod]:
    run = current_run(store)
    found = [pod_of_rank(store, rank) for rank in run.ranks.values()] if run else []
    return [pod for pod in found if pod is not None and pod.ready]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("minutes", type=int, nargs="?", default=MINUTES)
    parser.add_argument("--profiles", nargs="+", choices=tuple(PROFILES), default=tuple(PROFILES))
    given = parser.parse_args()
    sys.exit(show(lambda: measure(given.minutes, given.profiles)))
