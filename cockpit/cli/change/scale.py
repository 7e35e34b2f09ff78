"""`cockpit scale GROUP N`: change a worker group's number of pods."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cockpit.actions.cluster import ClusterActions
from cockpit.backends.protocol import Scaled
from cockpit.cli.options import confirm, connect, permission
from cockpit.format import plural
from cockpit.model.cluster import WorkerGroup
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.store.store import Store

WAIT_S = 180.0


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("group", help="the worker group's name")
    parser.add_argument(
        "replicas", metavar="N", nargs="?", help="the number of pods; +1 and -1 are relative"
    )
    parser.add_argument("--min", type=int, metavar="N", help="the minimum number of pods")
    parser.add_argument("--max", type=int, metavar="N", help="the maximum number of pods")
    parser.add_argument(
        "--remove",
        action="append",
        default=[],
        metavar="POD",
        help="remove this pod first; repeatable",
    )
    parser.add_argument("--wait", action="store_true", help="wait until the pods are ready")
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.replicas is None and args.min is None and args.max is None and not args.remove:
        raise UsageError(
            "No number of pods was given for the group.",
            todo=f"For example: cockpit scale {args.group} +1, or --min 2 --max 8",
        )
    with connect.session(args, sources=(), kinds=("cluster", "pods")) as session:
        permission.require(session, "scale")
        connect.wait_for(session, ("backend",))
        group = _group(session.store, args.group)
        wanted = None if args.replicas is None else _number(args.replicas, group)
        uid = session.store.uid
        if not confirm.confirmed(
            args, plan(args, group, wanted), session.backend.ref, destroys=True
        ):
            return int(ExitCode.DONE if args.dry_run else ExitCode.FAILED)
        done = session.call(
            ClusterActions.on(session).scale(
                group.name,
                wanted,
                min_replicas=args.min,
                max_replicas=args.max,
                remove=args.remove,
                uid=uid,
            )
        )
        what = unit(done.after, group)
        print(f"Group {done.group}: {done.before} → {what}.", file=sys.stderr)
        if done.warning:
            print(done.warning, file=sys.stderr)
        if args.wait:
            _wait(session, group, done, args.remove)
    return int(ExitCode.DONE)


def plan(args: argparse.Namespace, group: WorkerGroup, wanted: int | None) -> list[str]:
    """What will be asked for, and what may come of it."""
    now = group.desired // group.hosts
    bounds = [f"{word} {n}" for word, n in (("min", args.min), ("max", args.max)) if n is not None]
    if wanted is None:
        lines = [f"Change group {group.name}, which has {unit(now, group)}: {', '.join(bounds)}."]
        lines = lines if bounds else []
    else:
        lines = [f"Scale group {group.name} from {now} to {unit(wanted, group)}."]
        low = group.min // group.hosts if args.min is None else args.min
        high = group.max // group.hosts if args.max is None else args.max
        if not low <= wanted <= high:
            clamped = min(max(wanted, low), high)
            lines.append(f"Its bounds are {low} to {high}: it will get {clamped}.")
    if args.remove:
        lines.append(f"These go first: {', '.join(args.remove)}.")
    if group.hosts > 1 and args.remove:
        lines.append(f"Each takes the other {group.hosts - 1} pods of its replica with it.")
    if group.suspended:
        lines.append("The group is suspended: it has no pods until the cluster is unsuspended.")
    if group.note:
        lines.append(f"At present: {group.note}.")
    if group.autoscaled and wanted is not None:
        lines.append(_of_autoscaler(args, group, wanted, now))
    return lines


def _of_autoscaler(args: argparse.Namespace, group: WorkerGroup, wanted: int, now: int) -> str:
    if wanted > now and args.min is None:
        return (
            f"Ray's autoscaler takes idle pods away again: --min {wanted} keeps {wanted} of them."
        )
    if wanted < now and not args.remove:
        return (
            "Ray's autoscaler holds pods that are busy until they are idle: --remove POD takes "
            "one all the same."
        )
    return "Ray's autoscaler continues to change this number."


def unit(count: int, group: WorkerGroup) -> str:
    """`1 pod`, `3 pods`; `2 replicas of 4 pods` where several make one."""
    return (
        plural(count, "pod")
        if group.hosts == 1
        else (f"{plural(count, 'replica')} of {group.hosts} pods")
    )


def _wait(session: connect.Session, group: WorkerGroup, done: Scaled, gone: Sequence[str]) -> None:
    pods = done.after * group.hosts

    def there(store: Store) -> bool:
        return _is_there(store, done.group, pods) and not set(gone) & store.pods.keys()

    if not session.wait(there, WAIT_S):
        now = session.store.groups.get(done.group)
        raise CockpitError(
            f"Group {done.group} does not have its {pods} pods after {WAIT_S:g} s.",
            now.note if now else "",
            todo="See why with: cockpit pods",
        )


def _group(store: Store, name: str) -> WorkerGroup:
    if (group := store.groups.get(name)) is not None:
        return group
    raise UsageError(
        f"There is no worker group {name!r}.", f"Groups: {', '.join(store.groups) or 'none'}."
    )


def _number(text: str, group: WorkerGroup) -> int:
    """`3`, `+1` or `-1`, as an absolute count of replicas that is not negative."""
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{text!r} is no number of pods.", todo="Give 3, +1 or -1.") from None
    now = group.desired // group.hosts
    return max(0, now + number if text[0] in "+-" else number)


def _is_there(store: Store, name: str, count: int) -> bool:
    living = [pod for pod in store.pods.values() if pod.group == name and pod.ended_s is None]
    return len(living) == count and all(pod.ready for pod in living)
