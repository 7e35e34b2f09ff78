"""`cockpit config`, `cockpit keys`, `cockpit themes`: settings of this user."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys

from cockpit.cli.options.settings import settle_all
from cockpit.cli.output import tables
from cockpit.config import file, paths
from cockpit.config.cluster_flags import FLAGS
from cockpit.config.theme_files import ThemeFile, read_theme, themes
from cockpit.model.cluster import ClusterPattern
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.model.secret import without_credentials


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    if verb == "config":
        parser.add_argument(
            "what",
            nargs="?",
            choices=("show", "check", "path", "edit", "rules"),
            default="show",
            help="show: the settings and their sources; check: find errors; path: of the file; "
            "edit: open it in an editor; rules: alert rules for Prometheus (default: show)",
        )
    tables.arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.verb == "keys":
        return _keys(args)
    if args.verb == "themes":
        return _themes(args)
    if args.what == "edit":
        _edit()
    if args.what in ("check", "edit"):
        from cockpit.cli.read import config_check

        return config_check.run(args)
    if args.what == "path":
        print(file.path())
        return int(ExitCode.DONE)
    if args.what == "rules":
        return _rules()
    found = file.read()
    settings = settle_all(args.given, found)
    values: dict[str, object] = {name: _shown(getattr(settings.where, name)) for name in FLAGS}
    values |= {
        "profile": settings.profile,
        "theme": settings.theme,
        "read_only": settings.read_only,
        "protected": [_pattern(one) for one in settings.protected],
    }
    rows = [
        {"name": name, "value": value, "set_by": settings.set_by.get(name, "default")}
        for name, value in values.items()
    ]
    tables.print_rows(rows, ("name", "value", "set_by"), args.output)
    if args.output == "table":
        there = "" if found.path.exists() else " (there is none yet)"
        print(f"\n{found.path}{there}: profiles {', '.join(found.profiles) or '–'}")
    return int(ExitCode.DONE)


def _themes(args: argparse.Namespace) -> int:
    rows = [
        {"name": one.name, "own": one.own, "path": str(one.path), "error": _theme_error(one)}
        for one in themes()
    ]
    failed = ("error",) if any(row["error"] for row in rows) else ()
    tables.print_rows(rows, ("name", "own", *failed, "path"), args.output)
    return int(ExitCode.DONE)


def _theme_error(one: ThemeFile) -> str:
    """Why the theme cannot be loaded; empty if it can."""
    try:
        read_theme(one)
    except CockpitError as error:
        return error.why.removeprefix(f"{one.path}: ")
    return ""


def _keys(args: argparse.Namespace) -> int:
    from cockpit.tui import keymap
    from cockpit.tui.keys import KEYS, moved

    keymap.use(keymap.parse(file.read().tables.get("keys", {})))
    rows = [
        {"name": key.id, "key": key.shown, "help": key.help, "views": list(key.views)}
        for key in map(moved, KEYS)
    ]
    tables.print_rows(rows, ("key", "name", "help"), args.output)
    return int(ExitCode.DONE)


def _rules() -> int:
    """Print the alerts as rules of Prometheus, with the thresholds of the configuration."""
    from cockpit.alerts import rule_file
    from cockpit.insight.detectors.thresholds import parse

    print(rule_file.text(parse(file.read().tables.get("alerts", {}))), end="")
    return int(ExitCode.DONE)


def _shown(value: str | bool) -> str | bool:
    """Without the password that a URL may hold."""
    return without_credentials(value) if isinstance(value, str) else value


def _pattern(one: ClusterPattern) -> str:
    return "/".join((one.context, one.namespace, one.cluster))


def _edit() -> None:
    """Open the file in the user's editor."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "Editing needs a terminal.", todo="cockpit config path prints the path of the file."
        )
    where = file.path()
    paths.make_private(where.parent)
    if not where.exists():
        paths.replace_file(where, file.TEMPLATE)  # for the user alone: it may get secrets
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(editor), str(where)], check=False)
    except (OSError, ValueError) as error:
        raise CockpitError(
            f"The editor {editor!r} cannot be started.",
            str(error),
            "Set VISUAL or EDITOR to another one.",
        ) from error
    if done.returncode != 0:
        raise CockpitError(f"The editor {editor!r} ended with exit code {done.returncode}.")
