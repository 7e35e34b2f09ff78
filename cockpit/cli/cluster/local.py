"""`cockpit local up|down|status`: the embedded local cluster."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from cockpit.actions import audit
from cockpit.backends.local import GroupSpec, LocalCluster, down, list_clusters, status, up
from cockpit.cli.options import confirm
from cockpit.cli.output import tables
from cockpit.cli.output.streams import log
from cockpit.config.repeatable_flag import repeatable
from cockpit.model.cluster import ClusterRef, PodPhase, Resources
from cockpit.model.error import ExitCode, UnreachableError, UsageError
from cockpit.model.recovery import FAST, PROFILES, profile

DEFAULT_NAME = "local"
DEFAULT_MAX = 8


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument(
        "what",
        choices=("up", "down", "status"),
        help="up: start a cluster; down: delete it; status: list the clusters",
    )
    parser.add_argument("name", nargs="?", help=f"the cluster's name (default: {DEFAULT_NAME})")
    parser.add_argument(
        "--workers", type=int, default=2, metavar="N", help="pods in group `workers` (default 2)"
    )
    repeatable(
        parser,
        "--group",
        "NAME=N",
        "a worker group of this name and size, instead of --workers; repeatable",
    )
    parser.add_argument("--cpus", type=float, default=1.0, help="CPUs of each worker (default 1)")
    parser.add_argument("--gpus", type=float, default=0.0, help="GPUs of each worker (default 0)")
    parser.add_argument(
        "--recovery",
        choices=tuple(PROFILES),
        default=FAST.name,
        help=f"the recovery profile of its pods (default {FAST.name}; see docs/recovery.md)",
    )
    confirm.arguments(parser)
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    name = args.name or (args.where.cluster if args.where.kind in ("", "local") else "")
    if args.what == "up":
        return start(args, name or DEFAULT_NAME, groups_of(args), args.recovery)
    if args.what == "down":
        return stop(args, name)
    return _status(args, name)


def start(args: argparse.Namespace, name: str, groups: Sequence[GroupSpec], recovery: str) -> int:
    confirm.refuse_read_only(args)
    sizes = ", ".join(f"{group.replicas} {group.name}" for group in groups)
    if args.dry_run:
        log(f"Start local cluster {name}: a head and {sizes}.")
        log("Dry run: nothing was changed.")
        return int(ExitCode.DONE)
    with audit.recorded("up", ClusterRef("local", name), name, after=sizes):
        asyncio.run(up(name, groups, progress=log, recovery=profile(recovery)))
    log(f"Cluster {name} is up. Open it with: cockpit --local --cluster {name}")
    return int(ExitCode.DONE)


def stop(args: argparse.Namespace, wanted: str) -> int:
    """Delete the local cluster, or without a name the only one."""
    name = wanted or _only_one()
    cluster = status(name)
    if cluster is None:
        raise UnreachableError(
            f"There is no local cluster {name!r}.",
            f"Available: {', '.join(c.name for c in list_clusters()) or 'none'}.",
            "cockpit local status lists them.",
        )
    living = sum(pod.phase is not PodPhase.FAILED for pod in cluster.pods)
    if living or cluster.operator_alive:
        pods = f"{living} pod{'s'[: living != 1]}"
        plan = f"Delete local cluster {name}: {pods}, every run on it, and its files."
        if not confirm.confirmed(args, [plan], ClusterRef("local", name), destroys=True):
            return confirm.not_confirmed(args)
    else:
        # After a reboot, for example: nothing lives there that could be lost by a slip.
        confirm.refuse_read_only(args)
        log(f"Delete local cluster {name}: only its files are left.")
        if args.dry_run:
            log("Dry run: nothing was changed.")
            return int(ExitCode.DONE)
    with audit.recorded("down", ClusterRef("local", name), name, before=f"{living} pods"):
        down(name, uid=cluster.spec.uid if cluster.spec is not None else "")
    log(f"Deleted cluster {name}.")
    return int(ExitCode.DONE)


def _status(args: argparse.Namespace, name: str) -> int:
    clusters = [c for c in list_clusters() if not name or c.name == name]
    if name and not clusters:
        raise UnreachableError(
            f"There is no local cluster {name!r}.", todo="cockpit local status lists them."
        )
    rows = [
        {
            "name": cluster.name,
            "health": cluster.health,
            "message": cluster.message,
            "dashboard_url": cluster.dashboard_url,
            "ray_version": cluster.ray_version,
            "groups": [tables.as_json(group) for group in cluster.groups],
            "pods": [tables.as_json(pod) for pod in cluster.pods],
        }
        for cluster in clusters
    ]
    if args.output != "table":
        tables.print_rows(rows, (), args.output)
        return int(ExitCode.DONE)
    table = [
        row
        | {
            "pods": sum(pod.ended_s is None for pod in cluster.pods),
            "ready": sum(pod.ready for pod in cluster.pods),
        }
        for row, cluster in zip(rows, clusters, strict=True)
    ]
    columns = ("name", "health", "pods", "ready", "dashboard_url", "message")
    tables.print_rows(table, columns, "table", empty="No local cluster.")
    return int(ExitCode.DONE)


def groups_of(args: argparse.Namespace) -> list[GroupSpec]:
    """The worker groups that the flags name. Raises UsageError."""
    if args.workers < 0:
        raise UsageError("--workers must be 0 or more.")
    wanted = args.group or [f"workers={args.workers}"]
    groups = []
    for text in wanted:
        name, _, count = text.partition("=")
        if not name or not count.isdecimal():
            raise UsageError(f"--group {text!r} is not NAME=N.", todo="For example: --group gpu=2")
        groups.append(group(name, int(count), Resources(cpus=args.cpus, gpus=args.gpus)))
    return groups


def group(name: str, count: int, resources: Resources) -> GroupSpec:
    return GroupSpec(name, replicas=count, min=0, max=max(DEFAULT_MAX, count), resources=resources)


def _only_one() -> str:
    clusters: list[LocalCluster] = list(list_clusters())
    if len(clusters) == 1:
        return clusters[0].name
    if not clusters:
        raise UnreachableError("There is no local cluster to delete.")
    names = ", ".join(cluster.name for cluster in clusters)
    raise UsageError(f"There are several local clusters: {names}.", todo="Name one.")
