"""`cockpit plan`: what `cockpit up` would make on hosts or in the cloud, and what it costs."""

from __future__ import annotations

import argparse
import asyncio

from cockpit.backends.lambda_cloud import ray_up
from cockpit.backends.ssh import lifecycle, node_list
from cockpit.backends.ssh.description import DEFAULT_NAME
from cockpit.cli.cluster import hosts, lambda_cloud, up
from cockpit.cli.options import connect
from cockpit.model.cluster import Node
from cockpit.model.error import ExitCode, UsageError
from cockpit.sources.ray.dashboard import Dashboard


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    up.on_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "ray-up", "hosts"),
        default="table",
        help="ray-up: a cluster YAML for ray up, from hosts that are running; hosts: a TOML "
        "hosts file, from the nodes of the Ray cluster at --address",
    )


def run(args: argparse.Namespace) -> int:
    if args.output == "hosts":
        return _of_nodes(args)
    place = up.place_of(args)
    if place == "lambda":
        return lambda_cloud.show(args)
    if place != "hosts" or args.output == "json":
        what = "-o json is" if place == "hosts" else "cockpit plan is for --on hosts and"
        raise UsageError(
            f"{what} for --on lambda.", todo=f"Instead: cockpit up --on {place} --dry-run"
        )
    described = hosts.described(args)
    if args.output == "ray-up":
        print(ray_up.text(described), end="")
        return int(ExitCode.DONE)
    print("\n".join(lifecycle.planned(described)))
    return int(ExitCode.DONE)


def _of_nodes(args: argparse.Namespace) -> int:
    """Print the hosts file of a Ray cluster that was started by other means."""
    if args.where.kind != "address" or args.on not in (None, "hosts") or args.file:
        raise UsageError(
            "-o hosts is for a Ray cluster at a URL.",
            todo="For example: cockpit plan --on hosts -o hosts --address http://10.0.0.10:8265",
        )
    backend = connect.backend(args)

    async def nodes() -> tuple[Node, ...]:
        try:
            async with Dashboard(backend.dashboard) as dashboard:
                return await dashboard.nodes()
        finally:
            await backend.aclose()

    print(node_list.text(asyncio.run(nodes()), args.where.cluster or DEFAULT_NAME), end="")
    return int(ExitCode.DONE)
