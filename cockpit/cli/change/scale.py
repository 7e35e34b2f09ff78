"""`cockpit scale GROUP N`: change a worker group's number of pods."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cockpit.actions.cluster import ClusterActions
from cockpit.backends.protocol import Scaled
from cockpit.cli.options import answers, confirm, connect
from cockpit.config.repeatable_flag import repeatable
from cockpit.format import in_seconds, plural
from cockpit.insight.waiting.advice import resized_in_queue
from cockpit.launch.closest_name import did_you_mean
from cockpit.model.cluster import WorkerGroup
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.model.scale import ScaleRequest, plan_scale, require_removable, unit, wanted_replicas
from cockpit.session.session import Session
from cockpit.store.store import Store

WAIT_S = 180.0


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("group", help="the worker group's name")
    parser.add_argument(
        "replicas", metavar="N", nargs="?", help="the number of pods; +1 and -1 are relative"
    )
    parser.add_argument("--min", type=int, metavar="N", help="the minimum number of pods")
    parser.add_argument("--max", type=int, metavar="N", help="the maximum number of pods")
    repeatable(parser, "--remove", "POD", "remove this pod first; repeatable")
    parser.add_argument("--wait", action="store_true", help="wait until the pods are ready")
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.replicas is None and args.min is None and args.max is None and not args.remove:
        raise UsageError(
            "No number of pods was given for the group.",
            todo=f"For example: cockpit scale {args.group} +1, or --min 2 --max 8",
        )
    with connect.session(args, sources=(), kinds=("cluster", "pods")) as session:
        confirm.require_permission(session, "scale")
        connect.wait_for(session, ("backend",))
        group = _group(session, args.group)
        if session.store.pods:  # they may not be listed without the right to
            require_removable(group.name, args.remove, session.store.pods.values())
        wanted = None if args.replicas is None else wanted_replicas(args.replicas, group)
        uid, pods = session.store.uid, session.store.pods
        uids = tuple(pods[name].uid for name in args.remove) if pods else ()
        plan = plan_scale(
            group, wanted, min_replicas=args.min, max_replicas=args.max, remove=args.remove
        )
        resized = plan.after not in (None, plan.before)
        lines = [*plan.lines, *(resized_in_queue(session.store) if resized else ())]
        if not confirm.confirmed(args, lines, session.backend.ref, destroys=True):
            return confirm.not_confirmed(args)
        request = ScaleRequest(
            group.name, wanted, args.min, args.max, tuple(args.remove), uid, remove_uids=uids
        )
        done = session.call(ClusterActions.on(session).scale(request))
        what = unit(done.after, group)
        print(f"Group {done.group}: {done.before} → {what}.", file=sys.stderr)
        if done.warning:
            print(done.warning, file=sys.stderr)
        if args.wait:
            wait = Wait(done.group, done.after * group.hosts, args.remove)
            session.wait(wait.is_over, WAIT_S)
            if not wait.is_there(session.store):
                raise wait.error(session.store, done)
    return int(ExitCode.DONE)


class Wait:
    """Until a group has its pods, or another client has changed their number."""

    def __init__(self, group: str, pods: int, removed: Sequence[str]) -> None:
        self._group, self._pods, self._removed = group, pods, set(removed)
        self._requested = False

    def is_there(self, store: Store) -> bool:
        living = [
            pod for pod in store.pods.values() if pod.group == self._group and pod.ended_s is None
        ]
        return (
            len(living) == self._pods
            and all(pod.ready for pod in living)
            and not self._removed & store.pods.keys()
        )

    def is_over(self, store: Store) -> bool:
        return self.is_there(store) or self.is_changed(store)

    def is_changed(self, store: Store) -> bool:
        """The store shows the old number until the watch has reported the new one."""
        is_requested = self._desired(store) == self._pods
        self._requested = self._requested or is_requested
        return self._requested and not is_requested

    def error(self, store: Store, done: Scaled) -> CockpitError:
        """Why the pods are not there."""
        group = store.groups.get(self._group)
        if self.is_changed(store):
            autoscaled = group is not None and group.autoscaled
            who = "Ray's autoscaler or another client" if autoscaled else "Another client"
            keep = f"cockpit scale {self._group} {done.after} --min {done.after}"
            number = plural(self._desired(store), "pod")
            return CockpitError(
                f"Group {self._group} was set to {number} before its {self._pods} were ready.",
                f"{who} has changed it.",
                todo=f"To keep the number: {keep}",
            )
        return CockpitError(
            f"Group {self._group} does not have its {self._pods} pods after {in_seconds(WAIT_S)}.",
            group.note if group else "",
            todo="See why with: cockpit pods",
        )

    def _desired(self, store: Store) -> int:
        group = store.groups.get(self._group)
        return 0 if group is None else group.desired


def _group(session: Session, name: str) -> WorkerGroup:
    groups = session.store.groups
    if (group := groups.get(name)) is not None:
        return group
    answers.require(session, ("backend",))
    raise UsageError(
        f"There is no worker group {name!r}{did_you_mean(name, groups) or '.'}",
        f"Groups: {', '.join(groups) or 'none'}.",
        "cockpit groups lists them.",
    )
