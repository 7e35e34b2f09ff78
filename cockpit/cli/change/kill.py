"""`cockpit kill POD|RANK`: kill a pod as a drill, and measure the recovery."""

from __future__ import annotations

import argparse
import sys

from cockpit.actions.drills import DrillActions
from cockpit.cli.drill.progress import as_row, kill
from cockpit.cli.options import confirm, connect
from cockpit.cli.output import tables
from cockpit.config import file
from cockpit.drills.plan.kill import RECOVER_S, plan_kill
from cockpit.drills.plan.plan import parse_blast_radius
from cockpit.insight.recovery.text import sentence
from cockpit.model.error import ExitCode, UsageError


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
        default=RECOVER_S,
        metavar="S",
        help=f"maximum time to watch the recovery (default {RECOVER_S:g})",
    )
    confirm.arguments(parser)
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if not args.grace >= 0:
        raise UsageError(f"--grace {args.grace:g} is not valid.", "It must be 0 or more seconds.")
    with connect.session(args, kinds=("cluster", "pods", "rayjobs")) as session:
        confirm.require_permission(session, "delete_pod")
        connect.wait_for(session, ("backend", "ray", "telemetry"), connect.TARGET_SETTLE_S)
        plan = plan_kill(session.store, args.target, args.grace, args.timeout)
        if not confirm.confirmed(args, plan.lines, session.backend.ref, destroys=True):
            return confirm.not_confirmed(args)
        actions = DrillActions(
            session, limits=parse_blast_radius(file.read().tables.get("drills", {}))
        )
        measured = kill(session, actions, plan, wait=not args.no_wait)
    drill = measured.drill
    if args.no_wait:
        print(f"Killed {drill.target}.", file=sys.stderr)
        return int(ExitCode.DONE)
    if args.output == "table":
        print(sentence(measured))
    else:
        tables.print_object(as_row(measured), args.output)
    came_back = measured.recovered or measured.interrupted is False
    if not drill.run_id:
        came_back = measured.pod_ready_s is not None
    return int(ExitCode.DONE if came_back else ExitCode.FAILED)
