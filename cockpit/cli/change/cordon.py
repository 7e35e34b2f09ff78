"""`cockpit cordon NODE`, `cockpit uncordon NODE`: whether new pods are placed on it."""

from __future__ import annotations

import argparse
import sys

from cockpit.actions.cluster import ClusterActions
from cockpit.cli.options import confirm, connect
from cockpit.launch.closest_name import did_you_mean
from cockpit.model.error import ExitCode, UsageError
from cockpit.store.store import Store


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("node", help="the Kubernetes node's name: see cockpit nodes --kubernetes")
    confirm.arguments(parser)


def run(args: argparse.Namespace) -> int:
    cordoned = args.verb == "cordon"
    with connect.session(args, sources=(), kinds=("pods", "nodes")) as session:
        confirm.require_permission(session, "cordon")
        connect.wait_for(session, ("backend",))
        store = session.store
        if store.kubernetes_nodes and args.node not in store.kubernetes_nodes:
            near = did_you_mean(args.node, store.kubernetes_nodes)
            raise UsageError(
                f"There is no node {args.node!r}{near or '.'}",
                todo="cockpit nodes --kubernetes lists them.",
            )
        node = store.kubernetes_nodes.get(args.node)
        if node is not None and node.cordoned == cordoned:
            print(f"{args.node} is {args.verb}ed already.", file=sys.stderr)
            return int(ExitCode.DONE)
        plan = [_plan(store, args.node, cordoned=cordoned)]
        if not confirm.confirmed(args, plan, session.backend.ref, destroys=cordoned):
            return confirm.not_confirmed(args)
        session.call(
            ClusterActions.on(session).cordon(args.node, cordoned, uid=node.uid if node else "")
        )
        print(f"{args.node} is {args.verb}ed.", file=sys.stderr)
    return int(ExitCode.DONE)


def _plan(store: Store, node: str, *, cordoned: bool) -> str:
    if not cordoned:
        return f"Uncordon {node}: new pods are placed on it again."
    here = [pod.name for pod in store.pods.values() if pod.host == node and pod.ended_s is None]
    stay = f"; {', '.join(here)} of this cluster stay there" if here else ""
    return f"Cordon {node}: no new pod is placed on it{stay}."
