"""`cockpit stop|delete|resume JOB`."""

from __future__ import annotations

import argparse
import sys

from cockpit.actions import ClusterActions
from cockpit.cli import confirm, connect
from cockpit.model.error import ExitCode


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("job", help="the job's submission id")
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    plans = {
        "stop": f"Stop job {args.job}: its processes end; its checkpoints stay.",
        "delete": f"Delete job {args.job} from Ray's list, its log with it.",
        "resume": f"Submit job {args.job} again; it goes on from its last checkpoint.",
    }
    with connect.session(args, sources=()) as session:
        connect.wait_for(session, ("backend",))
        if not confirm.confirmed(args, [plans[args.verb]]):
            return int(ExitCode.DONE if args.dry_run else ExitCode.FAILED)
        actions = ClusterActions(session.backend)
        if args.verb == "stop":
            session.call(actions.stop_job(args.job))
            print(f"Job {args.job} is stopping.", file=sys.stderr)
        elif args.verb == "delete":
            session.call(actions.delete_job(args.job))
            print(f"Job {args.job} is deleted.", file=sys.stderr)
        else:
            print(session.call(actions.resume(args.job)).id)
    return int(ExitCode.DONE)
