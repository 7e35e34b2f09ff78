"""`cockpit themes`: the themes of the screen, the user's own first."""

from __future__ import annotations

import argparse

from cockpit.cli.output import tables
from cockpit.config.theme_files import themes


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    rows = [{"name": theme.name, "own": theme.own, "path": str(theme.path)} for theme in themes()]
    tables.print_rows(rows, ("name", "own", "path"), args.output)
    return 0
