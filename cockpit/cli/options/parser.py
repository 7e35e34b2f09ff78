"""The flags that every verb has, their parser, and the settings that result from them."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

from cockpit.model.error import UsageError
from cockpit.model.secret import masked


class Formatter(argparse.HelpFormatter):
    """As wide as the terminal; argparse imports shutil to find that out, at each verb's start."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    with suppress(KeyError, ValueError):
        if (columns := int(os.environ["COLUMNS"])) > 0:
            return columns
    with suppress(OSError, ValueError):  # no terminal, or a closed stream
        if sys.__stdout__ is not None:
            return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80
    return 80


class Parser(argparse.ArgumentParser):
    """Argparse whose complaint is one of our errors."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": Formatter, **options})

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments"):  # it quotes them
            message = masked(message)
        raise UsageError(f"{self.prog}: {message}.", todo=f"See: {self.prog} --help")

    def format_help(self) -> str:
        """The usage without the flags that every verb has: these are in separate groups."""
        shared = {flag.dest for flag in common_flags()._actions} | {"help"}
        own = [action for action in self._actions if action.dest not in shared]
        formatter = self._get_formatter()
        formatter.add_usage(None, own, [])
        usage = formatter.format_help().rstrip()
        groups = "[cluster options] [global options]"
        if len(usage.splitlines()[-1]) + 1 + len(groups) > formatter._width:
            usage += "\n" + " " * len(f"usage: {self.prog}")
        return super().format_help().replace(self.format_usage().rstrip(), f"{usage} {groups}")


def common_flags() -> argparse.ArgumentParser:
    """Flags that every verb takes, before or after its name. Unset ones are absent."""
    flags = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    where = flags.add_argument_group("cluster options")
    where.add_argument("--local", action="store_true", help="a local cluster on this machine")
    where.add_argument("--context", metavar="NAME", help="Kubernetes: a context of the kubeconfig")
    where.add_argument("--namespace", "-n", metavar="NAME", help="Kubernetes: the namespace")
    where.add_argument("--cluster", metavar="NAME", help="the cluster's name")
    where.add_argument("--address", metavar="URL", help="a Ray cluster, by its dashboard's URL")
    where.add_argument("--hosts", metavar="FILE", help="a cluster on the hosts of this TOML file")
    where.add_argument("--kubeconfig", metavar="FILE", help="instead of KUBECONFIG")
    where.add_argument(
        "--dashboard-url",
        metavar="URL",
        help="Kubernetes: the dashboard's URL, to bypass the API server",
    )
    where.add_argument(
        "--token-secret",
        metavar="NAME",
        help="Kubernetes: the Secret with Ray's token, if KubeRay did not create it",
    )
    where.add_argument(
        "--profile", metavar="NAME", help="a profile of the configuration: see cockpit config"
    )
    how = flags.add_argument_group("global options")
    how.add_argument(
        "--read-only", action="store_true", help="refuse everything that changes the cluster"
    )
    how.add_argument("--theme", metavar="NAME", help="the theme of the UI: see cockpit themes")
    how.add_argument("--debug", action="store_true", help="show tracebacks")
    return flags


def settled(args: argparse.Namespace) -> argparse.Namespace:
    """With `where`, `theme` and `read_only` as flags, environment and profile have them."""
    args.given = dict(vars(args))
    args.debug = args.given.get("debug", False)
    if args.given.get("verb") == "config":
        return args  # it must also work when the file is broken
    from cockpit.cli.options.settings import settle_all
    from cockpit.config import file

    settings = settle_all(args.given, file.read())
    args.where, args.theme, args.profile = settings.where, settings.theme, settings.profile
    args.read_only, args.protected = settings.read_only, settings.protected
    return args
