"""`cockpit up --on hosts FILE` and `cockpit down --on hosts FILE`."""

from __future__ import annotations

import argparse
import asyncio

from cockpit.actions import audit
from cockpit.backends.ssh import description, lifecycle
from cockpit.backends.ssh.description import Hosts
from cockpit.cli.options import confirm
from cockpit.cli.output.streams import log
from cockpit.format import plural
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import ExitCode, UsageError
from cockpit.model.recovery import FAST


def start(args: argparse.Namespace) -> int:
    hosts = described(args)
    what = lifecycle.described(hosts)
    confirm.refuse_read_only(args)
    if args.dry_run:
        for line in lifecycle.planned(hosts):
            log(line)
        log("Dry run: nothing was changed.")
        return int(ExitCode.DONE)
    with audit.recorded("up", _ref(hosts), hosts.cluster, after=what):
        asyncio.run(lifecycle.up(hosts, FAST.name, args.timeout, log))
    log(f"Cluster {hosts.cluster} is up. Open it with: cockpit --hosts {hosts.path}")
    return int(ExitCode.DONE)


def stop(args: argparse.Namespace) -> int:
    hosts = described(args)
    plan = [
        f"Delete cluster {hosts.cluster} on {plural(len(hosts.hosts), 'host')}: its pods, every "
        "run on them, and its files."
    ]
    if not confirm.confirmed(args, plan, _ref(hosts), destroys=True):
        return confirm.not_confirmed(args)
    with audit.recorded("down", _ref(hosts), hosts.cluster) as line:
        removed = asyncio.run(lifecycle.down(hosts))
        line["before"] = f"{removed.ended} processes"
    log(
        f"Deleted cluster {hosts.cluster}: ended {plural(removed.ended, 'process')}; none of its "
        f"processes and files are left on {plural(removed.hosts, 'host')}."
    )
    return int(ExitCode.DONE)


def described(args: argparse.Namespace) -> Hosts:
    return description.read(file_of(args, "hosts", "the hosts", "hosts.toml"))


def file_of(args: argparse.Namespace, place: str, what: str, example: str) -> str:
    """The file that describes `what`. Raises UsageError if there is none."""
    if file := args.file or args.where.hosts:
        return str(file)
    raise UsageError(
        f"cockpit {args.verb} --on {place} needs a file that describes {what}.",
        todo=f"For example: cockpit {args.verb} --on {place} {example}",
    )


def _ref(hosts: Hosts) -> ClusterRef:
    return ClusterRef("ssh", hosts.cluster, context=hosts.path)
