"""`cockpit kill POD|RANK`: one fault, now, and how the run comes back from it."""

from __future__ import annotations

import argparse
import sys

from cockpit.actions.cluster import ClusterActions
from cockpit.cli.drill.recovery import as_row, follow, sentence
from cockpit.cli.options import confirm, connect, permission
from cockpit.cli.output import tables
from cockpit.drills.plan.kill import plan_kill
from cockpit.insight.recovery.measurement import baseline
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.event import DrillInjected

TIMEOUT_S = 300.0


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("target", metavar="POD|RANK", help="a pod's name, or a rank's number")
    parser.add_argument(
        "--grace",
        type=float,
        default=0.0,
        metavar="S",
        help="seconds between SIGTERM and SIGKILL (default 0: SIGKILL at once)",
    )
    parser.add_argument("--no-wait", action="store_true", help="do not watch the recovery")
    parser.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        metavar="S",
        help=f"maximum time to watch the recovery (default {TIMEOUT_S:g})",
    )
    confirm.arguments(parser)
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if not args.grace >= 0:
        raise UsageError(f"A grace of {args.grace:g} s cannot be given.", "It is 0 or more.")
    with connect.session(args, kinds=("cluster", "pods", "rayjobs")) as session:
        permission.require(session, "delete_pod")
        connect.wait_for(session, ("backend", "ray", "telemetry"), connect.TARGET_SETTLE_S)
        plan = plan_kill(session.store, args.target, args.grace)
        if not confirm.confirmed(args, plan.lines, session.backend.ref, destroys=True):
            return int(ExitCode.DONE if args.dry_run else ExitCode.FAILED)
        before = baseline(session.store, plan.run_id)
        drill = session.call(ClusterActions.on(session).kill(plan))
        session.dispatch(DrillInjected(at_s=drill.injected_s, source="user", drill=drill))
        if args.no_wait:
            print(f"Killed {drill.target}.", file=sys.stderr)
            return int(ExitCode.DONE)
        measured = follow(session, drill, args.timeout, before)
        if args.output == "table":
            print(sentence(measured))
        else:
            tables.print_json(as_row(measured), indent=2 if args.output == "json" else None)
        came_back = measured.recovered or measured.interrupted is False
        if not drill.run_id:
            came_back = measured.pod_ready_s is not None
        return int(ExitCode.DONE if came_back else ExitCode.FAILED)
