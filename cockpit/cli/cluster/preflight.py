"""`cockpit preflight [JOB]`: check the pods that a job would use."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from cockpit.actions.jobs import JobActions
from cockpit.cli.options import confirm, connect
from cockpit.cli.output import tables
from cockpit.config.repeatable_flag import repeatable
from cockpit.launch import flags
from cockpit.launch.closest_name import did_you_mean
from cockpit.launch.rayjob import RayJobOptions
from cockpit.model.error import ExitCode, UsageError
from cockpit.preflight.demand import Demand, demand
from cockpit.preflight.finding import Finding, failed
from cockpit.preflight.preflight import VERB_S
from cockpit.preflight.target import Target, target
from cockpit.store.store import Store

COMMAND_AFTER_DASHES = True
COLUMNS = ("name", "state", "found", "fix")


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    flags.arguments(parser)
    what = parser.add_argument_group("what is checked")
    repeatable(
        what,
        "--module",
        "NAME",
        "a module that the job imports, in addition to those that are found",
    )
    what.add_argument("--storage", metavar="DIR", help="the folder of checkpoints in the pods")
    repeatable(what, "--group", "NAME", "check the head and the pods of this worker group only")
    what.add_argument(
        "--network",
        action="store_true",
        help="measure all-reduce between the pods of each pair: uses their CPUs and network",
    )
    what.add_argument(
        "--timeout",
        type=float,
        default=VERB_S,
        metavar="S",
        help=f"maximum time for the answers of the pods (default {VERB_S:g})",
    )
    flags.of_new_cluster(
        parser.add_argument_group("a RayJob with its own cluster (checked without pods)")
    )
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if not args.timeout > 0:
        raise UsageError(f"--timeout {args.timeout:g} is too short.", "It must be above 0 seconds.")
    if args.network:
        confirm.refuse_read_only(args, "--network slows the runs on the pods")
    new = _new_cluster(args)
    if new is not None:
        with connect.session(args, sources=(), kinds=("cluster",)) as session:
            checking = JobActions.on(session).preflight_of_new_cluster(
                flags.spec(args), new, timeout_s=args.timeout, read_only=args.read_only
            )
            return _print(args, session.call(checking))
    wanted = _demand(args)
    with connect.session(args, sources=(), kinds=("cluster", "pods")) as session:
        connect.wait_for(session, ("backend",))
        chosen = _target(session.store, args)
        checking = JobActions.on(session).preflight(
            chosen,
            wanted,
            timeout_s=args.timeout,
            read_only=args.read_only,
            between_pods=args.network,
        )
        return _print(args, session.call(checking))


def _print(args: argparse.Namespace, found: list[Finding]) -> int:
    tables.print_rows([tables.as_json(one) for one in found], COLUMNS, args.output)
    return int(ExitCode.FAILED if failed(found) else ExitCode.DONE)


def _new_cluster(args: argparse.Namespace) -> RayJobOptions | None:
    """None for the pods that exist. Raises UsageError for flags of the other kind."""
    replicas = flags.replicas(args)
    if not args.own_cluster:
        if replicas or args.image or args.queue:
            raise UsageError(
                "--replicas, --image and --queue require --own-cluster.",
                todo="Add --own-cluster.",
            )
        return None
    if args.network or args.group or args.module or args.storage:
        raise UsageError(
            "--network, --group, --module and --storage check pods, and a new cluster has none.",
            todo="Leave out --own-cluster to check the pods of the present cluster.",
        )
    if not (args.job or args.command or args.settings):
        raise UsageError(
            "--own-cluster needs the job that would create it.",
            todo="For example: cockpit preflight checkpointed --workers 2 --own-cluster",
        )
    return RayJobOptions(True, replicas, args.image, queue=args.queue)


def _demand(args: argparse.Namespace) -> Demand:
    named = args.job or args.command or args.settings
    if not named and (args.set or args.workers is not None):
        raise UsageError(
            "--set and --workers are for a bundled job, and none is named.",
            todo="For example: cockpit preflight checkpointed --workers 2",
        )
    wanted = demand(flags.spec(args)) if named else Demand(modules=("ray",))
    return replace(
        wanted,
        modules=(*wanted.modules, *args.module),
        storage=args.storage or wanted.storage,
    )


def _target(store: Store, args: argparse.Namespace) -> Target:
    for name in args.group:
        if store.groups and name not in store.groups:
            raise UsageError(
                f"There is no worker group {name!r}{did_you_mean(name, store.groups) or '.'}",
                f"Groups: {', '.join(store.groups)}.",
            )
    return target(store.pods.values(), store.groups.values(), only_groups=args.group)
