"""`cockpit keys`: the keys of the screen."""

from __future__ import annotations

import argparse

from cockpit.cli.output import tables


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    from cockpit.tui.keys import KEYS

    rows = [
        {"name": key.id, "key": key.shown, "help": key.help, "views": list(key.views)}
        for key in KEYS
    ]
    tables.print_rows(rows, ("key", "name", "help"), args.output)
    return 0
