"""`cockpit drill …`: inject faults and measure the recovery."""

from __future__ import annotations

import argparse
from importlib import import_module

from cockpit.cli.options import confirm
from cockpit.config.repeatable_flag import repeatable
from cockpit.model.error import UsageError

MODULES = {
    "list": "list",
    "plan": "run",
    "run": "run",
    "history": "history",
    "show": "history",
    "report": "history",
    "undo": "undo",
}
"""Of `cockpit.cli.drill`, each with `run(args) -> int`."""
FORMS = {"report": ("html", "md", "json")}
"""How each may be printed, where it is not as every verb."""


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument(
        "what", choices=tuple(MODULES), help="plan prints what run would do, and changes nothing"
    )
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        help="run, plan: a fault, a game day (see list) or a file; "
        "show, report: the id of a drill or a game day, or last: the newest one that was not "
        "refused; history, list: only this fault",
    )
    fault = parser.add_argument_group("run, plan: a fault of the catalogue")
    repeatable(
        fault,
        "--set",
        "KEY=VALUE",
        "a parameter of the fault; for a game day, a setting of the job that it launches; "
        "repeatable",
    )
    fault.add_argument(
        "--for", type=float, dest="for_s", metavar="S", help="short for --set for_s=S"
    )
    fault.add_argument(
        "--target",
        default="random",
        metavar="TARGET",
        help="head, a pod's name, rank:N or group:NAME (default: random, by the seed)",
    )
    fault.add_argument(
        "--count", type=int, default=1, metavar="N", help="number of targets (default 1)"
    )
    repeatable(fault, "--group", "NAME", "only pods of this worker group; repeatable")
    parser.add_argument(
        "--max-pods",
        type=int,
        metavar="N",
        help="run, plan: refuse drills that act on more pods, also in a game day",
    )
    parser.add_argument(
        "--max-share",
        type=float,
        metavar="X",
        help="run, plan: refuse drills that act on a larger share of a worker group (default: a "
        "third, and at least one pod)",
    )
    fault.add_argument("--allow-head", action="store_true", help="allow the head as a target")
    wanted = parser.add_argument_group("run, plan: the hypothesis")
    wanted.add_argument(
        "--recover-within", type=float, metavar="S", help="maximum time to the first new step"
    )
    wanted.add_argument(
        "--max-steps-lost", type=int, metavar="N", help="maximum number of steps that are repeated"
    )
    wanted.add_argument(
        "--max-time-lost",
        type=float,
        metavar="S",
        help="maximum time lost until the run has caught up",
    )
    repeatable(
        wanted, "--probe", "PROBE", "must hold before and after: 'throughput >= 80'; repeatable"
    )
    repeatable(wanted, "--probe-during", "PROBE", "must hold during the fault; repeatable")
    repeatable(
        wanted,
        "--abort-unless",
        "PROBE",
        "abort and undo the drill when it does not hold; repeatable",
    )
    how = parser.add_argument_group("run, plan: how")
    how.add_argument("--seed", type=int, metavar="N", help="the seed for choosing targets")
    how.add_argument(
        "--timeout", type=float, metavar="S", help="maximum time to wait for the recovery"
    )
    how.add_argument(
        "--junit", default="", metavar="FILE", help="also write the result as JUnit XML"
    )
    past = parser.add_argument_group("history, report")
    past.add_argument(
        "--limit", type=int, default=50, metavar="N", help="the newest N drills (default 50)"
    )
    past.add_argument("--out", metavar="PATH", help="the file of the report; - for standard output")
    parser.add_argument(
        "--all",
        action="store_true",
        help="undo: --yes also covers what is older than 15 minutes, or was left on another host",
    )
    confirm.arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "jsonl", "html", "md"),
        help="the format (default: table; report: html, md or json)",
    )


def run(args: argparse.Namespace) -> int:
    if args.what in ("run", "plan") and not args.name:
        raise UsageError(
            f"cockpit drill {args.what} needs a fault, a game day or a file.",
            todo=f"For example: cockpit drill {args.what} pod-kill. See: cockpit drill list",
        )
    allowed = FORMS.get(args.what, ("table", "json", "jsonl"))
    if args.output and args.output not in allowed:
        raise UsageError(
            f"cockpit drill {args.what} does not print {args.output}.",
            todo=f"It prints: {', '.join(allowed)}.",
        )
    module = import_module(f"cockpit.cli.drill.{MODULES[args.what]}")
    return int(module.run(args))
