"""`cockpit describe KIND/NAME`, `cockpit yaml KIND/NAME`: one object as text or as raw YAML."""

from __future__ import annotations

import argparse

from cockpit.actions.cluster import ClusterActions
from cockpit.cli.options import confirm, connect
from cockpit.model.error import ExitCode, UsageError

KINDS = {
    "cluster": "cluster",
    "raycluster": "cluster",
    "group": "group",
    "pod": "pod",
    "po": "pod",
    "node": "node",
    "machine": "node",
    "rayjob": "rayjob",
    "job": "rayjob",
}
"""Accepted names of each kind, earlier ones too."""
NAMES = ("cluster", "group", "pod", "node", "rayjob")


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument(
        "object",
        metavar="KIND/NAME",
        help=f"{', '.join(NAMES)}; the cluster needs no name, and a name alone is a pod's",
    )


def run(args: argparse.Namespace) -> int:
    kind, name = parsed(args.object)
    with connect.session(args, sources=(), kinds=()) as session:
        actions = ClusterActions.on(session)
        describing = args.verb == "describe"
        confirm.require_permission(session, "describe" if describing else "manifest")
        read = actions.describe if describing else actions.manifest
        print(session.call(read(kind, name or session.backend.ref.name)).rstrip("\n"))
    return int(ExitCode.DONE)


def parsed(text: str) -> tuple[str, str]:
    """`pod/NAME` or `NAME`; `cluster` alone is the connected one. Raises UsageError."""
    kind_name, slash, name = text.partition("/")
    if not slash:
        return ("cluster", "") if kind_name in ("cluster", "raycluster") else ("pod", kind_name)
    kind = KINDS.get(kind_name.lower().removesuffix("s"))
    if kind is None or (not name and kind != "cluster"):
        raise UsageError(
            f"{text!r} names no object.",
            f"KIND is one of {', '.join(NAMES)}.",
            "For example: cockpit describe pod/NAME",
        )
    return kind, name
