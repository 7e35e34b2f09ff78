"""A pod of a run is killed each minute: `python -m tests.bench.kills [MINUTES] [--profiles …] …`.

`training.jobs.checkpointed` with 2 ranks on three pods, one of them a spare, under one recovery
profile after the other; on local pods, or with `--on testbed` on those of the test Kubernetes.
Useful are new steps: steps that are done again do not count. They are compared with minutes without
a kill of the same run: one before each KILLS kills, and one at the end. Such a minute begins when
the run has settled and, on local pods, has its spare processes; the time until then counts for
neither. So a machine whose speed changes from hour to hour changes both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

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
from tests.cluster.testbed import Testbed

MINUTES = 30
EVERY_S = 60.0
KILLS = 5
"""Between two minutes without one."""
GOODPUT_PERCENT = 85.0
CASE = recovery.CASES["spare"]


def measure(minutes: int, profiles: Sequence[str], on: str) -> Table:
    began = load()
    with ExitStack() as stack:
        testbed = None
        if on == "testbed":
            testbed = Testbed.up(real=True, operator=True)
            stack.callback(testbed.down)
        runs = [of_profile(name, minutes, on, testbed) for name in profiles]
    return Table(
        f"A kill a minute, for {minutes} minutes",
        f"A run of 2 ranks on three pods, one of them a spare ({recovery.PLACES[on]}), under one "
        f"recovery profile after the other. Each {EVERY_S:g} s, the pod of a rank is killed, or "
        "another one while no rank runs. Goodput: the new steps in the minutes with kills ÷ those "
        f"of as many minutes without one. Such minutes are before each {KILLS} kills, and at the "
        "end.",
        [line for run in runs for line in lines(run)],
        began,
    )


class Outcome(Struct, frozen=True):
    profile: str
    disturbed: list[int]
    """Steps of each minute with a kill."""
    undisturbed: list[int]
    attempts: int
    """That followed the first."""


def lines(run: Outcome) -> Iterator[Line]:
    mean = sum(run.disturbed) / len(run.disturbed)
    usual = sum(run.undisturbed) / len(run.undisturbed)
    percent = 100.0 * mean / usual
    promised = run.profile == "fast"
    yield Line(
        f"{run.profile}: goodput, {len(run.disturbed)} kills",
        f"{percent:.0f} %",
        f"≥ {GOODPUT_PERCENT:g} %" if promised else "",
        percent >= GOODPUT_PERCENT if promised else None,
    )
    for what, steps in (("with", run.disturbed), ("without", run.undisturbed)):
        found = f"{sum(steps) / len(steps):,.0f} ({min(steps):,}–{max(steps):,})"
        yield Line(f"{run.profile}: steps in a minute {what} a kill", found)
    yield Line(f"{run.profile}: attempts that followed", str(run.attempts))


def of_profile(name: str, minutes: int, on: str, testbed: Testbed | None) -> Outcome:
    profile = PROFILES[name]
    disturbed, undisturbed = list[int](), list[int]()
    with (
        recovery.cluster(on, testbed, CASE, profile) as (backend, storage),
        builder.session_on(backend) as session,
    ):
        session.call(recovery.launch(backend, CASE, profile, storage))
        for number in range(minutes):
            if number % KILLS == 0:
                recovery.settle(session, CASE, profile, on)
                undisturbed.append(minute(session))
                say(f"{name}: {undisturbed[-1]} steps in a minute without a kill")
            kill(session, number)
            disturbed.append(minute(session))
            say(f"{name}: kill {number + 1} of {minutes}, {disturbed[-1]} steps in its minute")
        recovery.settle(session, CASE, profile, on)
        undisturbed.append(minute(session))
        run = current_run(session.store)
        assert run is not None
        return Outcome(name, disturbed, undisturbed, max(run.attempts) - min(run.attempts))


def minute(session: Session) -> int:
    """Return the new steps of the run in EVERY_S."""
    until_s, first = session.clock() + EVERY_S, newest(session.store)
    session.wait(lambda _: session.clock() >= until_s, EVERY_S)
    return newest(session.store) - first


def newest(store: Store) -> int:
    """Return the newest step that the run has reached in any attempt."""
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
    parser.add_argument("--on", choices=("local", "testbed"), default="local")
    given = parser.parse_args()
    sys.exit(show(lambda: measure(given.minutes, given.profiles, given.on)))
