"""`cockpit cordon MACHINE`, `cockpit uncordon MACHINE`: whether new pods are placed on it."""

from __future__ import annotations

import argparse
import sys

from cockpit.actions.cluster import ClusterActions
from cockpit.cli.options import confirm, connect
from cockpit.launch.closest_name import did_you_mean
from cockpit.model.error import ExitCode, UsageError
from cockpit.store.store import Store


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("machine", help="the Kubernetes node's name: see cockpit machines")
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    cordoned = args.verb == "cordon"
    with connect.session(args, sources=(), kinds=("pods", "machines")) as session:
        confirm.require_permission(session, "cordon")
        connect.wait_for(session, ("backend",))
        store = session.store
        if store.machines and args.machine not in store.machines:
            near = did_you_mean(args.machine, store.machines)
            raise UsageError(
                f"There is no machine {args.machine!r}{near or '.'}",
                todo="cockpit machines lists them.",
            )
        machine = store.machines.get(args.machine)
        if machine is not None and machine.cordoned == cordoned:
            print(f"{args.machine} is {args.verb}ed already.", file=sys.stderr)
            return int(ExitCode.DONE)
        plan = [_plan(store, args.machine, cordoned=cordoned)]
        if not confirm.confirmed(args, plan, session.backend.ref, destroys=cordoned):
            return confirm.not_confirmed(args)
        session.call(ClusterActions.on(session).cordon(args.machine, cordoned))
        print(f"{args.machine} is {args.verb}ed.", file=sys.stderr)
    return int(ExitCode.DONE)


def _plan(store: Store, machine: str, *, cordoned: bool) -> str:
    if not cordoned:
        return f"Uncordon {machine}: new pods are placed on it again."
    here = [pod.name for pod in store.pods.values() if pod.host == machine and pod.ended_s is None]
    stay = f"; {', '.join(here)} of this cluster stay there" if here else ""
    return f"Cordon {machine}: no new pod is placed on it{stay}."
