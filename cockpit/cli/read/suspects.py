"""`cockpit nodes --suspect`: the nodes that are likely bad, with the evidence."""

from __future__ import annotations

import argparse

from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.config import paths
from cockpit.insight.nodes.suspects import Suspect, suspects
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.node_history import NodeHistory


def run(args: argparse.Namespace) -> int:
    """Print them, the most suspect first."""
    with connect.session(args, sources=("backend",), kinds=("pods", "nodes")) as session:
        connect.wait_for(session, ("backend",))
        ref, nodes = session.backend.ref, list(session.store.kubernetes_nodes.values())
    runs = NodeHistory(Library(paths.state_dir())).of(ref)
    found = suspects(runs, nodes)
    hours = sum(sum(of.node_hours.values()) for of in runs)
    tables.print_rows(
        [{"name": one.node, **tables.as_json(one)} for one in found],
        ("node", "score", "last_s", "cordoned"),
        args.output,
        empty=f"No suspect nodes: {len(runs)} recorded runs of this cluster, "
        f"{hours:.1f} node-hours with ranks.",
        name_of=lambda row: f"node/{row['name']}",
    )
    if args.output == "table" and found:
        _explain(found, can_cordon=ref.backend == "kuberay")
    return 0


def _explain(found: list[Suspect], *, can_cordon: bool) -> None:
    print("", "Evidence:", sep="\n")
    for one in found:
        for line in one.evidence:
            print(f"  {one.node}: {line}")
    names = [one.node for one in found if not one.cordoned]
    if can_cordon and names:
        print("", "To keep new pods off a node:", sep="\n")
        print(*(f"  cockpit cordon {name}" for name in names), sep="\n")
