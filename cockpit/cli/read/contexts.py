"""`cockpit contexts`: the contexts of the kubeconfig. Asks nobody."""

from __future__ import annotations

import argparse

from cockpit.cli.output import tables
from cockpit.model.error import ExitCode
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    from cockpit.cli.options import kubernetes

    configured = kubernetes.config(args.where)
    taken = args.where.context or configured.current
    rows = [
        {
            "name": one_line(context.name),
            "current": context.name == taken,
            "server": one_line(without_credentials(context.server)),
            "namespace": one_line(context.namespace),
            "user": one_line(context.user),
        }
        for context in configured.contexts
    ]
    columns = ("name", "current", "server", "namespace", "user")
    tables.print_rows(rows, columns, args.output, empty="The kubeconfig has no contexts.")
    return int(ExitCode.DONE)
