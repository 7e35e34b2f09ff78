"""`cockpit stack RANK` and `cockpit profile RANK`: py-spy on the process of a rank, on its node."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from cockpit.actions.cluster import ClusterActions
from cockpit.cli.options import confirm, connect
from cockpit.cli.output import tables
from cockpit.format import in_seconds
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.flamegraph import Profile
from cockpit.sources.ray.profiling import Process
from cockpit.store.selectors import current_run, ranks_in_order

SECONDS = 5
TOP = 15


STACK = (
    "The stack of each thread of the rank's process, by py-spy on its node. The process "
    "is paused for a few milliseconds. Ray allows it where RAY_DASHBOARD_ENABLE_PROFILING=1 "
    "is set on the head, as it is on local clusters of cockpit."
)


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("rank", metavar="RANK", help="a rank's number")
    parser.add_argument("--native", action="store_true", help="include C and C++ frames")
    tables.arguments(parser)
    if verb == "stack":
        parser.description = STACK
        return
    parser.description = (
        "Sample the rank's process with py-spy on its node, 100 times a second, and write the "
        "flame graph; training continues. Ray allows it where RAY_DASHBOARD_ENABLE_PROFILING=1 "
        "is set on the head, as it is on local clusters of cockpit."
    )
    parser.add_argument(
        "--seconds", type=int, default=SECONDS, metavar="S", help=f"how long (default {SECONDS})"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the file (default: rank-N-TIME.svg here)"
    )
    parser.add_argument("--idle", action="store_true", help="also count idle threads")
    parser.add_argument(
        "--memory",
        action="store_true",
        help="profile memory allocations with memray instead, as an HTML page",
    )
    parser.add_argument(
        "--top", type=int, default=TOP, metavar="N", help=f"functions to print (default {TOP})"
    )


def run(args: argparse.Namespace) -> int:
    confirm.refuse_read_only(args, "pauses the rank's process")
    if args.verb == "stack":
        return _run_stack(args)
    kind = "html" if args.memory else "svg"
    stamp = time.strftime("%Y%m%d-%H%M%S")
    out: Path = args.out or Path(f"rank-{args.rank}-{stamp}.{kind}")
    with connect.session(args, sources=("telemetry",), kinds=("pods",)) as session:
        process = process_of(session, args.rank)
        if args.output == "table":
            print(f"Rank {args.rank}: {process}, for {in_seconds(args.seconds)} …", file=sys.stderr)
        found = _profile(session, process, args)
    write(out, found if isinstance(found, bytes) else found.svg)
    _print(args, process, out, found)
    return int(ExitCode.DONE)


def write(out: Path, data: bytes) -> None:
    """Raises CockpitError when the file cannot be written."""
    try:
        out.write_bytes(data)
    except OSError as error:
        raise CockpitError(
            f"{out} could not be written.", str(error), "Choose another path: --out"
        ) from error


def _profile(session: Session, process: Process, args: argparse.Namespace) -> Profile | bytes:
    actions = ClusterActions.on(session)
    if args.memory:
        return session.call(actions.memory_profile(process, args.seconds))
    return session.call(
        actions.cpu_profile(process, args.seconds, idle=args.idle, native=args.native)
    )


def _print(args: argparse.Namespace, process: Process, out: Path, found: Profile | bytes) -> None:
    hot = [] if isinstance(found, bytes) else found.hot[: args.top]
    if args.output != "table":
        row = {"rank": int(args.rank), "pid": process.pid, "node_ip": process.node_ip}
        row |= {"seconds": args.seconds, "file": str(out)}
        if isinstance(found, Profile):
            row |= {"samples": found.samples, "hot": hot}
        tables.print_object(row, args.output)
        return
    if isinstance(found, Profile):
        if not found.samples:
            print("No samples: the process did nothing on a CPU. --idle includes idle threads.")
        rows = [
            {"self": f"{one.self_percent:.1f}", "total": f"{one.total_percent:.1f}", "in": one.name}
            for one in hot
        ]
        if rows:
            print(
                f"{found.samples} samples; self: percent in the function; total: with what it "
                "calls:"
            )
            tables.print_table(rows, ("self", "total", "in"))
    print(f"Written: {out}", file=sys.stderr)


def _run_stack(args: argparse.Namespace) -> int:
    with connect.session(args, sources=("telemetry",), kinds=("pods",)) as session:
        process = process_of(session, args.rank)
        text = session.call(ClusterActions.on(session).stack(process, native=args.native))
    if args.output == "table":
        print(f"Rank {args.rank}: {process}", file=sys.stderr)
        print(text.strip("\n"))
    else:
        row = {"rank": int(args.rank), "pid": process.pid, "node_ip": process.node_ip}
        row |= {"node_id": process.node_id, "stack": text}
        tables.print_object(row, args.output)
    return int(ExitCode.DONE)


def process_of(session: Session, rank: str) -> Process:
    """Return the rank's process in the newest attempt. UsageError without one.

    From the telemetry of the run, else from Ray Train's state.
    """
    if not rank.isdecimal():
        raise UsageError(f"{rank!r} is not a rank.", "A rank is a number.", "See: cockpit ranks")
    connect.wait_for(session, ("telemetry",))
    run = current_run(session.store)
    view = run.ranks.get(int(rank)) if run else None
    if view is not None and view.placement is not None:
        placed = view.placement
        return Process(placed.pid, placed.node_ip, placed.node_id)
    ranks = [one.rank for one in ranks_in_order(run)] if run else []
    if not ranks and (found := session.call(_of_train(session, int(rank)))) is not None:
        return found
    why = "No training run is known on this cluster."
    if run is not None:
        text = few(tuple(ranks)) if ranks else "none yet"
        why = f"The ranks of {run.name or run.id} are: {text}."
    raise UsageError(f"There is no rank {rank}.", why, "See: cockpit runs")


def few(ranks: tuple[int, ...]) -> str:
    """`0, 1`, or from the first to the last where they follow one another."""
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]} to {ranks[-1]}"
    return ", ".join(map(str, ranks))


async def _of_train(session: Session, rank: int) -> Process | None:
    async with Dashboard(session.backend.dashboard) as dashboard:
        for run in await dashboard.train_runs():
            for worker in run.attempts[-1].workers if run.attempts else ():
                if worker.rank == rank:
                    return Process(worker.pid, worker.node_ip, worker.node_id)
    return None
