"""`cockpit stack RANK`: what every thread of a rank's process is doing now."""

from __future__ import annotations

import argparse
import sys

from cockpit.cli.options import confirm, connect
from cockpit.cli.options.rank_process import process_of
from cockpit.cli.output import tables
from cockpit.model.error import ExitCode
from cockpit.session.session import Session
from cockpit.sources.ray.profiling import Process, RayTools


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.description = (
        "The stack of each thread of the rank's process, by py-spy on its node. The process "
        "is paused for a few milliseconds. Ray allows it where RAY_DASHBOARD_ENABLE_PROFILING=1 "
        "is set on the head, as it is on local clusters of cockpit."
    )
    parser.add_argument("rank", metavar="RANK", help="a rank's number")
    parser.add_argument("--native", action="store_true", help="C and C++ frames too")
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    confirm.refuse_read_only(args, "pauses the rank's process")
    with connect.session(args, sources=("telemetry",), kinds=("pods",)) as session:
        process = process_of(session, args.rank)
        text = session.call(_stack(session, process, native=args.native))
    if args.output == "table":
        print(f"Rank {args.rank}: {process}", file=sys.stderr)
        print(text.strip("\n"))
    else:
        row = {"rank": int(args.rank), "pid": process.pid, "node_ip": process.node_ip}
        row |= {"node_id": process.node_id, "stack": text}
        tables.print_json(row, indent=2 if args.output == "json" else None)
    return int(ExitCode.DONE)


async def _stack(session: Session, process: Process, *, native: bool) -> str:
    async with RayTools(session.backend.dashboard) as tools:
        return await tools.stack(process, native=native)
