"""Ask before something changes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cockpit.model.error import NotAllowedError, UsageError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do it without asking")
    parser.add_argument("--dry-run", action="store_true", help="print what it would do, and exit")


def confirmed(args: argparse.Namespace, plan: Sequence[str]) -> bool:
    """Say the plan on standard error; whether to carry it out.

    Raises NotAllowedError in read-only mode, UsageError when nobody is there to be asked.
    """
    for line in plan:
        print(line, file=sys.stderr)
    if args.dry_run:
        print("Dry run: nothing was changed.", file=sys.stderr)
        return False
    refuse_read_only(args)
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(
            "This changes the cluster and asks first, but standard input is no terminal.",
            todo="Add --yes to do it, or --dry-run to see what it would do.",
        )
    print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("Left as it was.", file=sys.stderr)
    return False


def refuse_read_only(args: argparse.Namespace, does: str = "changes the cluster") -> None:
    """Raises NotAllowedError in read-only mode; `does` is the reason, after the verb's name."""
    if args.read_only:
        raise NotAllowedError(
            f"cockpit {args.verb} {does}, and this is read-only mode.",
            todo="Remove --read-only, COCKPIT_READ_ONLY and the profile's read_only to allow it.",
        )
