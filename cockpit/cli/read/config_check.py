"""`cockpit config check`: every error of the configuration, with its line and its fix."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from cockpit.alerts.settings import hook
from cockpit.cli.output import tables
from cockpit.cli.read.open import grafana_url
from cockpit.config import file, toml_reader
from cockpit.config.theme_files import read_theme, theme_named
from cockpit.config.toml_reader import Reader
from cockpit.drills.plan.plan import parse_blast_radius
from cockpit.guard import settings as guard
from cockpit.insight.detectors import thresholds
from cockpit.insight.metrics import prices
from cockpit.model.error import CockpitError, ExitCode
from cockpit.session.monitored import recorder_limits
from cockpit.sources.history_server import settings as history_server
from cockpit.sources.mlflow import settings as mlflow
from cockpit.sources.prometheus import settings as prometheus
from cockpit.tui import keymap

Parser = Callable[[dict[str, Any]], object]


class Problem(Struct, frozen=True):
    """An error, and where in the file it is."""

    place: toml_reader.Path
    error: CockpitError


def run(args: argparse.Namespace) -> int:
    where = file.path()
    text = file.text_of(where)
    reader = Reader(str(where), text or "")
    rows = [_row(where, reader, problem) for problem in _problems(where, reader.tables)]
    rows.sort(key=lambda row: row["line"])
    if args.output != "table":
        tables.print_rows(rows, (), args.output)
    elif not rows:
        print(f"{where}: {'there is no such file' if text is None else 'no errors'}")
    else:
        print("\n".join(map(_text, rows)))
    return int(ExitCode.USAGE if rows else ExitCode.DONE)


def _row(where: Path, reader: Reader, problem: Problem) -> dict[str, Any]:
    error = problem.error
    # Errors of the file as a whole begin with its name.
    what, why = (error.why, "") if error.what.startswith(str(where)) else (error.what, error.why)
    return {
        "name": ".".join(map(str, problem.place)),
        "file": str(where),
        "line": reader.line(problem.place),
        "what": what,
        "why": why,
        "fix": error.todo,
    }


def _text(row: Mapping[str, Any]) -> str:
    error = str(CockpitError(row["what"], row["why"], row["fix"])).replace("\n", "\n  ")
    return f"{row['file']}:{row['line']}: {error}"


def _problems(where: Path, raw: Mapping[str, Any]) -> Iterator[Problem]:
    profiles, hooks = raw.get("profiles"), raw.get("hooks")
    named = profiles if isinstance(profiles, dict) else {}
    top = dict(raw)
    if named and all(isinstance(own, dict) for own in named.values()):
        top["profiles"] = {name: {} for name in named}  # their content is checked below

    def whole(table: dict[str, Any]) -> None:
        _require_theme(file.parsed(where, table).named("").theme)

    yield from _of_table((), whole, top)
    for name, parse in PARSERS.items():
        yield from _of_table((name,), parse, raw.get(name))
    for number, one in enumerate(hooks if isinstance(hooks, list) else ()):
        yield from _of_hook(number, one)
    for name, own in named.items():
        yield from _of_profile(where, name, own)


def _of_profile(where: Path, name: str, raw: Any) -> Iterator[Problem]:
    place = ("profiles", name)

    def whole(table: dict[str, Any]) -> None:
        _require_theme(file.parsed(where, {"profiles": {name: table}}).profiles[name].theme)

    yield from _of_table(place, whole, raw)
    if isinstance(raw, dict):
        of = f"profile {name}"
        yield from _of_table(
            (*place, "guard"), lambda table: guard.parse(table, of), raw.get("guard")
        )


def _of_hook(number: int, raw: Any) -> Iterator[Problem]:
    """The first error: without the key that has it, another one may be missing."""
    name = f"hooks[{number + 1}]"
    yield from list(_of_table(("hooks", number), lambda table: hook(name, table), raw))[:1]


def _of_table(place: toml_reader.Path, parse: Parser, raw: Any) -> Iterator[Problem]:
    """A problem for each key without which the parser raises no such error.

    A parser raises its first error only, and some keys are valid only together.
    """
    left = dict(raw) if isinstance(raw, dict) else {}
    while left and (error := _error(parse, left)) is not None:
        for key in left:
            less = {name: value for name, value in left.items() if name != key}
            if str(_error(parse, less)) != str(error):
                yield Problem((*place, key), error)
                left = less
                break
        else:
            yield Problem(place, error)
            return


def _error(parse: Parser, table: dict[str, Any]) -> CockpitError | None:
    try:
        parse(table)
    except CockpitError as error:
        return error
    return None


def _require_theme(name: str) -> None:
    if name:
        read_theme(theme_named(name))


def _require_themes(table: dict[str, Any]) -> None:
    for name in table.values():
        _require_theme(str(name))


PARSERS: dict[str, Parser] = {
    "recorder": recorder_limits,
    "alerts": thresholds.parse,
    "prometheus": lambda table: prometheus.parse(table, os.environ),
    "mlflow": lambda table: mlflow.parse(table, os.environ),
    "grafana": grafana_url,
    "history_server": lambda table: history_server.parse(table, os.environ),
    "cost": prices.parse,
    "drills": parse_blast_radius,
    "guard": guard.parse,
    "keys": keymap.parse,
    "context_themes": _require_themes,
}
"""By table of the configuration, what the rest of cockpit reads it with."""
