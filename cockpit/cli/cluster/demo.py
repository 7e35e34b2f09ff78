"""`cockpit demo`: a local Ray cluster, a checkpointed training run on it, and the UI.

With `--headless`, without a UI: kill a worker half-way and print the result.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from cockpit.cli.options import confirm
from cockpit.cli.output import tables
from cockpit.model.error import ExitCode, UsageError


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("--workers", type=int, default=2, help="worker pods and ranks (default 2)")
    parser.add_argument("--name", default="demo", help="the cluster's name (default: demo)")
    parser.add_argument("--epochs", type=int, default=3000, help="epochs to train (default 3000)")
    parser.add_argument(
        "--headless",
        action="store_true",
        help="run without the UI: kill a worker, measure the recovery, print the result",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=90.0,
        help="with --headless: duration in seconds (default 90)",
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    confirm.refuse_read_only(args)
    if args.workers < 1:
        raise UsageError("A demo needs at least 1 worker.", todo="Give --workers 1 or more.")
    if not args.headless:
        from cockpit.cli.screen import screen

        return screen.demo(args)
    from cockpit.cli.cluster import headless

    def show(summary: dict[str, Any]) -> None:
        if args.output == "table":
            headless.print_table(summary)
        else:
            tables.print_object(summary, args.output)
        sys.stdout.flush()

    recovered = headless.demo(args, show)
    return int(ExitCode.DONE if recovered else ExitCode.FAILED)
