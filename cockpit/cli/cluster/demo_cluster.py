"""The demo's own cluster: started for it, and ended with it unless `--keep`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the screen is painted before these are imported
    from cockpit.backends.local import LocalBackend

Log = Callable[[str], None]


def start(
    args: argparse.Namespace, log: Log, claimed: Callable[[], None] = lambda: None
) -> LocalBackend:
    """The demo's cluster, with one CPU per worker, so that each rank has a separate pod.

    From `claimed` on, the demo deletes the cluster at its end.
    """
    import asyncio

    from cockpit.backends.local import GroupSpec, LocalBackend, up
    from cockpit.model.cluster import Resources
    from cockpit.model.recovery import FAST

    group = GroupSpec(
        "workers",
        replicas=args.workers,
        min=0,
        max=max(4, args.workers * 2),
        resources=Resources(cpus=1.0),
    )
    asyncio.run(up(args.name, [group], progress=log, claimed=claimed, recovery=FAST))
    return LocalBackend(args.name)


def end(args: argparse.Namespace, log: Log) -> None:
    from cockpit.backends.local import down, status
    from cockpit.backends.local.removal import uninterrupted

    with uninterrupted():
        if status(args.name) is None:
            return  # it failed to start, and was deleted
        if args.keep:
            log(f"Cluster {args.name} stays up; remove it with: cockpit local down {args.name}")
        else:
            log(f"Taking down cluster {args.name} …")
            down(args.name)


def settings(args: argparse.Namespace) -> dict[str, str]:
    """The job's settings; its checkpoints are deleted with the cluster."""
    from cockpit.backends.local import status

    cluster = status(args.name)
    assert cluster is not None
    return {
        "workers": str(args.workers),
        "epochs": str(args.epochs),
        "storage_path": str(cluster.directory / "results"),
    }
