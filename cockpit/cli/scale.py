"""`cockpit scale GROUP N`: change a worker group's number of pods."""

from __future__ import annotations

import argparse
import sys

from cockpit.actions import ClusterActions
from cockpit.cli import confirm, connect
from cockpit.model.cluster import WorkerGroup
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.store.store import Store

WAIT_S = 180.0


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("group", help="the worker group's name")
    parser.add_argument("replicas", metavar="N", help="how many pods; +1 and -1 are relative")
    parser.add_argument("--min", type=int, metavar="N", help="the least that it may have")
    parser.add_argument("--max", type=int, metavar="N", help="the most that it may have")
    parser.add_argument(
        "--remove", action="append", default=[], metavar="POD", help="this pod goes first"
    )
    parser.add_argument("--wait", action="store_true", help="return when the pods are there")
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    with connect.session(args, sources=()) as session:
        connect.wait_for(session, ("backend",))
        group = _group(session.store, args.group)
        wanted = _number(args.replicas, group)
        low = group.min if args.min is None else args.min
        high = group.max if args.max is None else args.max
        plan = [f"Scale group {group.name} from {group.desired} to {wanted} pods."]
        if not low <= wanted <= high:
            clamped = min(max(wanted, low), high)
            plan.append(f"Its bounds are {low} to {high}: it will get {clamped}.")
        if args.remove:
            plan.append(f"These go first: {', '.join(args.remove)}.")
        if not confirm.confirmed(args, plan):
            return int(ExitCode.DONE if args.dry_run else ExitCode.FAILED)
        done = session.call(
            ClusterActions(session.backend).scale(
                group.name, wanted, min_replicas=args.min, max_replicas=args.max, remove=args.remove
            )
        )
        print(f"Group {done.group}: {done.before} → {done.after} pods.", file=sys.stderr)
        if done.warning:
            print(done.warning, file=sys.stderr)
        if args.wait and not session.wait(
            lambda store: _is_there(store, done.group, done.after), WAIT_S
        ):
            raise CockpitError(
                f"Group {done.group} does not have its {done.after} pods after {WAIT_S:g} s.",
                todo="See why with: cockpit pods",
            )
    return int(ExitCode.DONE)


def _group(store: Store, name: str) -> WorkerGroup:
    if (group := store.groups.get(name)) is not None:
        return group
    raise UsageError(
        f"There is no worker group {name!r}.", f"Groups: {', '.join(store.groups) or 'none'}."
    )


def _number(text: str, group: WorkerGroup) -> int:
    """`3`, `+1` or `-1`, as an absolute count that is not negative."""
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{text!r} is no number of pods.", todo="Give 3, +1 or -1.") from None
    return max(0, group.desired + number if text[0] in "+-" else number)


def _is_there(store: Store, name: str, count: int) -> bool:
    living = [pod for pod in store.pods.values() if pod.group == name and pod.ended_s is None]
    return len(living) == count and all(pod.ready for pod in living)
