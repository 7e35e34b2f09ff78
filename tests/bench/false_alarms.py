"""What is reported of a healthy run on a busy machine: `python -m tests.bench.false_alarms`.

`training.jobs.checkpointed` with 2 ranks on local pods under the recovery profile `fast`, which
detects faults soonest. Processes that only compute take the CPU from it. Nothing is broken, so each
restart and each reported hang is a false alarm. The other findings may be right: ranks do wait.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator

from cockpit.format import plural
from cockpit.guard.trouble import hangs
from cockpit.insight.detectors.findings import findings
from cockpit.model.recovery import PROFILES
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store.selectors import current_run
from tests.bench import recovery
from tests.bench.kills import newest
from tests.bench.process import computing
from tests.bench.table import Line, Table, busy, load, say, show

MINUTES = 60
BUSY = 4
EVERY_S = 2.0
"""How often the findings are computed."""
CASE = recovery.CASES["rank-kill"]
HANGS = frozenset({"hang", "stuck-start"})


def measure(minutes: int, processes: int) -> Table:
    began = load()
    profile = PROFILES["fast"]
    with (
        recovery.local(CASE, profile) as (backend, storage),
        builder.session_on(backend) as session,
    ):
        session.call(recovery.launch(backend, CASE, profile, storage))
        assert session.wait(lambda store: newest(store) > 0, recovery.START_TIMEOUT_S), (
            "the run does not start"
        )
        with computing(processes):
            lines = list(watched(session, minutes))
    return Table(
        f"A healthy run on a busy machine, for {minutes} minutes",
        "A run of 2 ranks on two local pods under `fast`, beside "
        f"{plural(processes, 'busy process')}. Findings are computed each {EVERY_S:g} s.",
        lines,
        began,
    )


def watched(session: Session, minutes: int) -> Iterator[Line]:
    kinds, guard, shares = Counter[str](), set[str](), list[float]()
    first = newest(session.store)
    for number in range(minutes):
        until_s = session.clock() + 60.0
        while session.clock() < until_s:
            pause(session, EVERY_S)
            current = findings(session.store, current_run(session.store), session.clock())
            kinds.update(finding.kind for finding in current)
            guard.update(trouble.sentence for trouble in hangs(session.store, session.clock()))
        shares.append(busy())
        say(f"minute {number + 1} of {minutes}: step {newest(session.store)}, {dict(kinds)}")
    run = current_run(session.store)
    assert run is not None
    restarts = max(run.attempts) - min(run.attempts)
    hung = sum(kinds[kind] for kind in HANGS)
    yield Line("restarts", f"{restarts}", "0", restarts == 0)
    yield Line("findings of a hang or of a start that is stuck", f"{hung}", "0", hung == 0)
    yield Line("hangs that the guard would act on", f"{len(guard)}", "0", not guard)
    others = [f"{kind} {count}" for kind, count in kinds.most_common() if kind not in HANGS]
    yield Line("other findings, and how often", ", ".join(others) or "none")
    yield Line("steps", f"{newest(session.store) - first:,}")
    yield Line("the CPU in use, in the mean", f"{sum(shares) / len(shares):.0%}")


def pause(session: Session, seconds: float) -> None:
    """Events are taken during it."""
    until_s = session.clock() + seconds
    session.wait(lambda _: session.clock() >= until_s, seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("minutes", type=int, nargs="?", default=MINUTES)
    parser.add_argument("--busy", type=int, default=BUSY, help="how many processes compute")
    given = parser.parse_args()
    sys.exit(show(lambda: measure(given.minutes, given.busy)))
