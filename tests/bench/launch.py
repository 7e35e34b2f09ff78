"""How long a run takes to start, and what it costs it later: `python -m tests.bench.launch [RUNS]`.

`training.jobs.checkpointed` with 2 ranks on two local pods, which are ready. Under both recovery
profiles, alternately, each time on a new cluster. The profile `fast` prepares for failures: the
throughput of the first seconds shows whether the run pays for it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence

from msgspec import Struct

from cockpit.insight.recovery.pace import step_at
from cockpit.model.recovery import PROFILES
from cockpit.session import builder
from cockpit.store.selectors import current_run
from tests.bench import recovery
from tests.bench.table import Line, Table, load, say, show

RUNS = 3
FIRST_S = 25.0
"""A start under fast was once at half speed for so long, while the spare processes were made."""
LATER_S = 60.0
"""From when on the throughput is the usual one."""
PERCENT = 97.0
START_TIMEOUT_S = 300.0


class Start(Struct, frozen=True):
    first_step_s: float
    """After the submission of the job."""
    percent: float
    """Steps in the first FIRST_S, of those in as long from LATER_S on."""


def measure(runs: int) -> Table:
    began = load()
    found: dict[str, list[Start]] = {name: [] for name in ("default", "fast")}
    for number in range(runs):
        for name, starts in found.items():
            starts.append(start(name))
            say(f"{name}, run {number + 1} of {runs}: {starts[-1]}")
    return Table(
        "How long a run takes to start",
        "A run of 2 ranks on two local pods that are ready, under both recovery profiles "
        f"alternately, {runs} of each, on a new cluster each time: medians, with the minimum "
        "and the maximum.",
        [line for name, starts in found.items() for line in lines(name, starts)],
        began,
    )


def lines(name: str, starts: Sequence[Start]) -> Iterator[Line]:
    first_step_s = [start.first_step_s for start in starts]
    yield Line(f"{name}: from the submission to the first step", f"{spread(first_step_s, 1)} s")
    percent = [start.percent for start in starts]
    promised = name == "fast"
    yield Line(
        f"{name}: steps in the first {FIRST_S:g} s ÷ in {FIRST_S:g} s a minute later",
        f"{spread(percent, 0)} %",
        f"≥ {PERCENT:g} %" if promised else "",
        statistics.median(percent) >= PERCENT if promised else None,
    )


def spread(values: Sequence[float], digits: int) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def start(name: str) -> Start:
    profile, case = PROFILES[name], recovery.CASES["alone"]
    with (
        recovery.local(case, profile) as (backend, storage),
        builder.session_on(backend) as session,
    ):
        ready = session.wait(
            lambda store: sum(pod.ready for pod in store.pods.values()) == case.pods + 1,
            START_TIMEOUT_S,
        )
        assert ready, session.store.pods
        submitted_s = session.clock()
        session.call(recovery.launch(backend, case, profile, storage))

        def steps(until_s: float) -> float:
            run = current_run(session.store)
            assert run is not None
            return step_at(run, until_s) or 0

        def stepped(_: object) -> bool:
            run = current_run(session.store)
            attempt = run.attempt if run else None
            return attempt is not None and attempt.first_step_s is not None

        assert session.wait(stepped, START_TIMEOUT_S), current_run(session.store)
        run = current_run(session.store)
        assert run is not None
        assert run.attempt is not None
        assert run.attempt.first_step_s is not None
        first_s = run.attempt.first_step_s
        end_s = first_s + LATER_S + FIRST_S
        session.wait(lambda _: session.clock() > end_s + recovery.RECORD_S, 2 * (LATER_S + FIRST_S))
        first = steps(first_s + FIRST_S)
        later = steps(end_s) - steps(end_s - FIRST_S)
        return Start(first_s - submitted_s, 100.0 * first / later)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=int, nargs="?", default=RUNS)
    given = parser.parse_args()
    sys.exit(show(lambda: measure(given.runs)))
