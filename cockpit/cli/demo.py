"""`cockpit demo`: a local Ray cluster, a checkpointed training run on it, and the screen.

`--headless` does the same without a screen, kills a worker half-way and prints what came of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cockpit.cli import confirm, output
from cockpit.model.error import ExitCode, UsageError

if TYPE_CHECKING:  # the screen is painted before these are imported
    from cockpit.backends.local import LocalBackend

Say = Callable[[str], None]


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("--workers", type=int, default=2, help="worker pods and ranks (default 2)")
    parser.add_argument("--name", default="demo", help="the cluster's name (default: demo)")
    parser.add_argument("--epochs", type=int, default=300, help="epochs to train (default 300)")
    parser.add_argument("--headless", action="store_true", help="no screen: kill, measure, print")
    parser.add_argument(
        "--seconds", type=float, default=90.0, help="how long without a screen (default 90)"
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    output.arguments(parser)


def run(args: argparse.Namespace) -> int:
    confirm.refuse_read_only(args)
    if args.workers < 1:
        raise UsageError("A demo needs at least 1 worker.", todo="Give --workers 1 or more.")
    if not args.headless:
        from cockpit.cli import screen

        return screen.demo(args)
    from cockpit.cli import headless

    def show(summary: dict[str, Any]) -> None:
        if args.output == "table":
            headless.print_table(summary)
        else:
            output.print_json(summary, indent=2 if args.output == "json" else None)
        sys.stdout.flush()

    recovered = headless.demo(args, show)
    return int(ExitCode.DONE if recovered else ExitCode.FAILED)


def cluster_up(
    args: argparse.Namespace, say: Say, claimed: Callable[[], None] = lambda: None
) -> LocalBackend:
    """The demo's cluster: one CPU a worker, so that each rank gets a pod of its own.

    From `claimed` on, the cluster is this demo's to take down.
    """
    import asyncio

    from cockpit.backends.local import GroupSpec, LocalBackend, up
    from cockpit.model.cluster import Resources

    group = GroupSpec(
        "workers",
        replicas=args.workers,
        min=0,
        max=max(4, args.workers * 2),
        resources=Resources(cpus=1.0),
    )
    asyncio.run(up(args.name, [group], progress=say, claimed=claimed))
    return LocalBackend(args.name)


def cluster_down(args: argparse.Namespace, say: Say) -> None:
    from cockpit.backends.local import down, status
    from cockpit.backends.local.uninterrupted import uninterrupted

    with uninterrupted():
        if status(args.name) is None:
            return  # it never came up, and what there was of it is gone
        if args.keep:
            say(f"Cluster {args.name} stays up; remove it with: cockpit local down {args.name}")
        else:
            say(f"Taking down cluster {args.name} …")
            down(args.name)


def settings(args: argparse.Namespace) -> dict[str, str]:
    """The job's settings; its checkpoints go with the cluster."""
    from cockpit.backends.local import status

    cluster = status(args.name)
    assert cluster is not None
    return {
        "workers": str(args.workers),
        "epochs": str(args.epochs),
        "storage_path": str(cluster.directory / "results"),
    }
