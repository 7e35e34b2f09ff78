"""The one-shot verbs: status, groups, pods, nodes, jobs, runs, ranks, events."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from cockpit.cli.options import answers, connect
from cockpit.cli.output import tables
from cockpit.cli.output.lists import TABLES, WIDE, print_list, rows_of
from cockpit.cli.output.status import prices_nodes, print_ranks, print_status, status
from cockpit.cli.output.tables import print_json
from cockpit.cli.read import namespaces
from cockpit.model.error import NotAllowedError, UsageError

SOURCES = {
    "groups": ("backend",),
    "pods": ("backend", "telemetry"),
    "nodes": ("ray",),
    "kubernetes nodes": ("backend",),
    "jobs": ("ray", "backend"),
    "events": ("backend", "telemetry"),
}
"""The sources that a verb waits for, the required one first; other verbs wait for all sources."""
ALL = ("telemetry", "backend", "ray")
KINDS = {
    "groups": ("pods",),
    "nodes": (),
    "kubernetes nodes": ("pods", "nodes"),
    "jobs": ("rayjobs",),
    "events": ("events",),
    "status": ("pods", "rayjobs"),
}
"""The resources that a verb lists on Kubernetes in addition to the RayCluster; pods by default."""
ONE_SHOT_VERBS = ("status", "groups", "runs", "ranks")
"""Verbs that list pods as a table, without their objects."""


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    tables.arguments(parser, tables.OBJECTS if verb == "status" else tables.LISTS)
    if verb == "status":
        parser.add_argument("--on", choices=("lambda",), help="the instances and their cost")
        parser.add_argument("file", nargs="?", metavar="FILE", help="for --on lambda")
    if verb in namespaces.VERBS:
        namespaces.arguments(parser)
    rows = "" if verb == "status" else "the rows that changed; in a pipe or with -o json, "
    tables.watch_argument(parser, f"print {rows}a line of JSON at each change")
    if verb == "nodes":
        which = parser.add_mutually_exclusive_group()
        which.add_argument(
            "--kubernetes",
            action="store_true",
            help="list the Kubernetes nodes instead of the Ray nodes",
        )
        which.add_argument(
            "--suspect",
            action="store_true",
            help="nodes that are likely bad, from all recorded runs and from Kubernetes",
        )


def run(args: argparse.Namespace) -> int:
    if args.watch and (getattr(args, "suspect", False) or getattr(args, "on", None)):
        flag = f"--on {args.on}" if args.verb == "status" else "--suspect"
        raise UsageError(f"--watch and {flag} cannot be combined.")
    if getattr(args, "suspect", False):
        from cockpit.cli.read import suspects

        return suspects.run(args)
    if getattr(args, "on", None):
        from cockpit.cli.cluster import lambda_cloud

        return lambda_cloud.status(args)
    if getattr(args, "file", None):
        raise UsageError(
            "A file is for --on lambda.", todo="For hosts: cockpit status --hosts FILE"
        )
    if args.watch and (args.output not in ("table", *tables.JSON) or namespaces.is_asked(args)):
        raise UsageError(
            "--watch prints a table or lines of JSON, of one cluster.",
            todo="Leave out -A and -l, and any -o but table, wide, json and jsonl.",
        )
    if getattr(args, "all_namespaces", False):
        print_list(args, args.verb, *namespaces.rows(args))
        return 0
    listed = "kubernetes nodes" if getattr(args, "kubernetes", False) else args.verb
    needs = SOURCES.get(listed, ALL)
    kinds = KINDS.get(listed, ("pods",))
    if args.verb == "status" and prices_nodes():
        kinds = (*kinds, "nodes")
    once = not args.watch and args.verb in ONE_SHOT_VERBS
    with connect.session(args, sources=needs, kinds=kinds, once=once) as session:
        if listed == "kubernetes nodes" and session.backend.ref.backend != "kuberay":
            raise UsageError(
                f"{session.backend.ref} has no Kubernetes nodes.",
                todo="Without --kubernetes, cockpit nodes lists the Ray nodes.",
            )
        connect.wait_for(session, needs)
        if args.watch and (args.verb == "status" or not tables.watches_table(args)):
            return _watch(args, session, listed)
        _require_answer(args, session, needs[0])
        _require_kinds(args, session, kinds)
        if args.watch:
            return _watch_table(args, session, listed)
        if args.verb == "status":
            print_status(session.store, args.output, session.clock())
        else:
            rows = rows_of(listed, session.store, session.clock())
            if getattr(args, "selector", ""):
                rows = namespaces.selected(args, session, rows)
            if args.verb == "ranks" and args.output == "table" and not args.wide:
                print_ranks(session.store, session.clock())
            else:
                print_list(args, listed, rows)
    return 0


def _watch(args: argparse.Namespace, session: connect.Session, listed: str) -> int:
    last: Any = None
    while True:
        store, now_s = session.store, session.clock()
        now: Any = status(store, now_s) if args.verb == "status" else rows_of(listed, store, now_s)
        if now != last:
            print_json({"at_s": session.clock(), args.verb: now}, indent=None)
            last = now
        session.wait_for_change()


def _watch_table(args: argparse.Namespace, session: connect.Session, listed: str) -> NoReturn:
    shown = TABLES[listed] + (WIDE[listed] if args.wide else ())
    changed = tables.ChangedRows(shown, is_log=listed == "events")
    while True:
        changed.print(rows_of(listed, session.store, session.clock()))
        session.wait_for_change()


def _require_answer(args: argparse.Namespace, session: connect.Session, source: str) -> None:
    """A list from a source that failed would be wrong: raise the source's error."""
    store = session.store
    if args.verb == "status":
        if store.groups or store.pods or any(each.ok for each in store.sources.values()):
            return  # it shows the state of each source
        source = "backend"
    state = store.sources.get(source)
    if answers.has_answered(store, source):
        return
    if source == "backend" and store.pods and state is not None:
        # Its operator may have ended and its pods still exist: show them, and report the fault.
        print(f"{store.ref} is unhealthy: {state.error}", file=sys.stderr)
        return
    if args.verb == "jobs" and store.jobs and state is not None:
        # RayJobs are Kubernetes' own: they are there without a head.
        print(f"Only RayJobs are listed: {state.error}", file=sys.stderr)
        return
    answers.require(session, (source,))


def _require_kinds(
    args: argparse.Namespace, session: connect.Session, kinds: Sequence[str]
) -> None:
    """A missing permission is an error for what the verb lists, otherwise a warning."""
    for kind in kinds:
        state = session.store.sources.get(f"backend:{kind}")
        if state is None or state.ok:
            continue
        if kind == args.verb:
            raise NotAllowedError(
                f"The {kind} of {session.backend.ref} cannot be listed.",
                state.error,
                "cockpit doctor lists what you may do, and how to fix what is missing.",
            )
        if args.output == "table":
            print(f"The {kind} could not be listed: {state.error}", file=sys.stderr)
