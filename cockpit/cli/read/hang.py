"""`cockpit hang [RUN]`: why a run makes no progress, and which ranks cause it."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator

from msgspec import Struct

from cockpit.actions.cluster import ClusterActions
from cockpit.cli.options import answers, confirm, connect
from cockpit.cli.output import tables
from cockpit.insight.hang.before import changes
from cockpit.insight.hang.text import lines
from cockpit.insight.hang.verdict import verdict
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.session.session import Session
from cockpit.sources.ray.profiling import Process
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run

SOURCES = ("telemetry", "ray")
STACKS = 8
"""The most ranks whose processes are inspected at the same time."""


class RankStack(Struct, frozen=True):
    """What py-spy printed on the node of a rank that sent no stack."""

    rank: int
    process: str
    stack: str | None
    error: str = ""
    """Why there is no stack."""


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "Why a run makes no progress: the ranks that block the others, the collective in which "
        "these wait, and the stacks of all ranks, grouped. Each rank sends them itself when its "
        "progress is late."
    )
    parser.add_argument(
        "run", nargs="?", default="", metavar="RUN", help="a run's name or id (default: the newest)"
    )
    parser.add_argument("--fail", action="store_true", help="exit with 1 when the run hangs")
    parser.add_argument(
        "--stacks",
        action="store_true",
        help=f"also take the stacks of up to {STACKS} ranks that sent none, with py-spy on their "
        "nodes. This pauses their processes for a few milliseconds",
    )
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.stacks:
        confirm.refuse_read_only(args, "--stacks pauses the processes of ranks")
    stacks: list[RankStack] = []
    with connect.session(args, sources=SOURCES) as session:
        connect.wait_for(session, SOURCES)
        of = _chosen(session, args.run)
        now_s = session.clock()
        found = verdict(of, now_s) if of is not None else None
        before = changes(session.store, of, found) if of is not None and found is not None else []
        if found is None:
            answers.require(session, SOURCES)
        if args.stacks and of is not None and found is not None:
            stacks = session.call(_stacks(session, of))
    if args.output != "table":
        named = {"run": of.id if of else None, "name": of.name if of else None}
        taken = {"stacks": stacks} if args.stacks else {}
        row = {**named, "verdict": found, "before": before, **taken}
        tables.print_object(row, args.output)
    elif of is None:
        print("No training run.")
    elif found is None:
        print(f"Run {of.name or of.id} is {of.state.value}: no rank reports a hang.")
    else:
        print("\n".join([*lines(found, before, now_s=now_s), *_stack_lines(stacks)]))
    return 1 if args.fail and found is not None and found.is_late else int(ExitCode.DONE)


async def _stacks(session: Session, of: RunView) -> list[RankStack]:
    """Inspect the ranks of the newest attempt without a dump, those without heartbeats first."""
    placed = of.attempt.placements if of.attempt is not None else ()
    wanted = [one for one in placed if one.rank not in of.hang.dumps]
    wanted.sort(key=lambda one: (one.rank not in of.hang.silent, one.rank))
    actions = ClusterActions.on(session)

    async def stack(rank: int, process: Process) -> RankStack:
        try:
            return RankStack(rank, str(process), await actions.stack(process))
        except CockpitError as error:
            return RankStack(rank, str(process), None, " ".join(str(error).splitlines()))

    return await asyncio.gather(
        *(
            stack(one.rank, Process(one.pid, one.node_ip, one.node_id))
            for one in wanted[:STACKS]
        )
    )  # fmt: skip


def _stack_lines(stacks: list[RankStack]) -> Iterator[str]:
    for one in stacks:
        yield from ("", f"Rank {one.rank} (no dump), {one.process}, by py-spy:")
        text = one.error if one.stack is None else one.stack.strip("\n")
        yield from (f"    {line}" for line in text.splitlines())


def _chosen(session: Session, name: str) -> RunView | None:
    store = session.store
    if not name:
        return current_run(store)
    runs = sorted(store.runs.values(), key=lambda run: -run.started_s)
    for of in runs:
        if name in (of.id, of.name, of.submission_id):
            return of
    answers.require(session, SOURCES)
    known = ", ".join(dict.fromkeys(run.name or run.id for run in runs)) or "none"
    raise UsageError(f"There is no run {name!r}.", f"Available: {known}.")
