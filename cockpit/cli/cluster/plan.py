"""`cockpit plan`: what `cockpit up` would make on hosts or in the cloud, and what it costs."""

from __future__ import annotations

import argparse

from cockpit.backends.lambda_cloud import ray_up
from cockpit.backends.ssh import lifecycle
from cockpit.cli.cluster import hosts, lambda_cloud, up
from cockpit.model.error import ExitCode, UsageError


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    up.on_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "ray-up"),
        default="table",
        help="ray-up: the YAML of a cluster for ray up, of hosts that are up",
    )


def run(args: argparse.Namespace) -> int:
    place = up.place_of(args)
    if place == "lambda":
        return lambda_cloud.show(args)
    if place != "hosts" or args.output == "json":
        what = "-o json" if place == "hosts" else "cockpit plan"
        raise UsageError(
            f"{what} is for --on lambda.", todo=f"Instead: cockpit up --on {place} --dry-run"
        )
    described = hosts.described(args)
    if args.output == "ray-up":
        print(ray_up.text(described), end="")
        return int(ExitCode.DONE)
    print(f"Start cluster {described.cluster}: {lifecycle.described(described)}.")
    return int(ExitCode.DONE)
