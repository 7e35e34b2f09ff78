"""How long the loss of a rank stops the others: `python -m tests.bench.fault_tolerant [--on …]`.

A real run of the job `fault_tolerant` with 3 ranks on local pods, or with `--on testbed` on those
of the test Kubernetes, with the recovery profile `fast`, and drills `rank-kill`, one after the
other, each on another rank. A step that is committed with fewer ranks, or with the rank again, is
logged by each rank with its time since the step before.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from cockpit.backends.protocol import Backend
from cockpit.launch import submission
from cockpit.model.recovery import FAST
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.store.run import ReplicaView, RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from tests.bench import recovery
from tests.bench.table import Line, Table, load, say, show
from tests.cluster.testbed import Testbed
from tests.drills.real_drill import conduct, plan

RANKS = 3
DRILLS = 6
STEP_S = 0.1
START_TIMEOUT_S = 600.0
SETTLE_S = 30.0
"""Long enough for the spare processes of the profile to be there."""
STOP_S = 2.0
CASE = recovery.Case("rank-kill", "the process of a replica is killed", pods=RANKS)
_CHANGE = re.compile(r"step (\d+) is committed (with(?:out)?) replica (\d)[^,]*, ([0-9.]+) s after")


@dataclass(frozen=True, slots=True)
class Row:
    """One drill."""

    rank: int
    lost_s: float
    """The longest time between two steps of another rank, when the rank was lost."""
    joined_s: float
    """The same when it took part again."""
    alone_s: float
    """How long the others trained without it."""
    redone: int
    """Steps that another rank did twice."""


def measure(on: str) -> Table:
    began = load()
    with ExitStack() as stack:
        testbed = None
        if on == "testbed":
            testbed = Testbed.up(real=True, operator=True)
            stack.callback(testbed.down)
        backend, storage = stack.enter_context(recovery.cluster(on, testbed, CASE, FAST))
        session = stack.enter_context(builder.session_on(backend))
        session.call(_launch(backend, storage), 120.0)
        journals = Path(stack.enter_context(TemporaryDirectory()))
        rows = [_drill(session, number % RANKS, journals) for number in range(DRILLS)]
    return tabled(rows, began, on)


async def _launch(backend: Backend, storage: str) -> None:
    settings = {"storage_path": storage, "epochs": "100000", "min_step_s": str(STEP_S)}
    spec = submission.bundled_spec("fault_tolerant", settings, RANKS)
    async with Dashboard(backend.dashboard) as dashboard:
        await submission.launch(dashboard, replace(spec, recovery=FAST))


def _run(store: Store) -> RunView:
    run = current_run(store)
    assert run is not None
    return run


def _quorum(store: Store) -> ReplicaView | None:
    run = current_run(store)
    return run.quorum if run is not None else None


def _is_whole(store: Store) -> bool:
    quorum = _quorum(store)
    run = current_run(store)
    return (
        quorum is not None
        and not quorum.missing
        and run is not None
        and len(run.ranks) == RANKS
        and all(rank.sample is not None for rank in run.ranks.values())
    )


def _drill(session: Session, rank: int, folder: Path) -> Row:
    if not session.wait(_is_whole, START_TIMEOUT_S):
        raise TimeoutError(f"the run is not whole: {_quorum(session.store)}")
    session.wait(lambda store: not _is_whole(store), SETTLE_S)
    before = _quorum(session.store)
    assert before is not None
    others = [number for number in range(RANKS) if number != rank]
    steps = {number: _run(session.store).ranks[number].steps for number in others}
    last = {number: _step(session.store, number) for number in others}
    conduct(session, plan("rank-kill", f"rank:{rank}"), folder / f"journal-{time.time():.0f}")
    if not session.wait(
        lambda store: _is_whole(store) and (_quorum(store) or before).number >= before.number + 2,
        START_TIMEOUT_S,
    ):
        raise TimeoutError(f"rank {rank} did not heal: {_quorum(session.store)}")
    log = session.call(_log(session), 60.0)
    joined = _quorum(session.store)
    assert joined is not None
    took = {
        way: [
            float(s)
            for step, found, of, s in _CHANGE.findall(log)
            if int(step) > before.step and int(step) > min(last.values())
            if (found, int(of)) == (way, rank)
        ]
        for way in ("without", "with")
    }
    done = {n: _run(session.store).ranks[n].steps - steps[n] for n in others}
    redone = sum(done[n] - (_step(session.store, n) - last[n]) for n in others)
    alone_s = joined.at_s - _lost_s(session.store, before, joined)
    row = Row(rank, max(took["without"]), max(took["with"]), alone_s, redone)
    say(f"  {row}")
    return row


def _step(store: Store, rank: int) -> int:
    sample = _run(store).ranks[rank].sample
    assert sample is not None
    return sample.step


def _lost_s(store: Store, before: ReplicaView, joined: ReplicaView) -> float:
    """When the drill that led from one to the other quorum was injected."""
    return max(
        drill.injected_s for drill in store.drills if before.at_s < drill.injected_s < joined.at_s
    )


async def _log(session: Session) -> str:
    """The output of all ranks. Ray leaves similar lines out of the driver's log."""
    lines: list[bytes] = []
    async with Dashboard(session.backend.dashboard) as dashboard:
        for node in [node.id for node in await dashboard.nodes() if node.alive]:
            for name in await dashboard.log_files(node, "worker-*.out"):
                async with dashboard.stream_log(node, name, lines=-1, follow=False) as batches:
                    async for batch in batches:
                        lines += batch
    return b"\n".join(lines).decode()


def tabled(rows: Sequence[Row], began: str, on: str) -> Table:
    lost, joined = [row.lost_s for row in rows], [row.joined_s for row in rows]
    redone = sum(row.redone for row in rows)
    return Table(
        "How long the loss of a replica stops the others",
        f"The job `fault_tolerant` with {RANKS} ranks on {recovery.PLACES[on]}, with the profile "
        f"`fast` and at least {STEP_S:g} s per step; {len(rows)} drills `rank-kill`, "
        f"{len(rows) // RANKS} on each rank. The value is the longest time between two committed "
        "steps of another rank, median (minimum–maximum) of the drills.",
        [
            Line(
                "a rank is killed: the step without it, after the step before",
                _spread(lost, 2),
                f"≤ {STOP_S:g} s",
                max(lost) <= STOP_S,
            ),
            Line(
                "it takes part again: the step with it, after the step before",
                _spread(joined, 2),
                f"≤ {STOP_S:g} s",
                max(joined) <= STOP_S,
            ),
            Line("from the kill until it takes part again", _spread([r.alone_s for r in rows], 1)),
            Line("steps of the other ranks that were done again", f"{redone}", "0", redone == 0),
        ],
        began,
    )


def _spread(values: Sequence[float], digits: int) -> str:
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f}–{high:.{digits}f}) s"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--on", choices=("local", "testbed"), default="local")
    options = parser.parse_args()
    sys.exit(show(lambda: measure(options.on)))
