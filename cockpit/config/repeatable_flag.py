"""A flag that may be given several times."""

from __future__ import annotations

import argparse


def repeatable(where: argparse._ActionsContainer, flag: str, metavar: str, help: str) -> None:
    """Add it to a parser or a group of flags; its value is a list, empty by default."""
    where.add_argument(flag, action="append", default=[], metavar=metavar, help=help)
