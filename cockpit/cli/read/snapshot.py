"""The one-shot verbs: status, groups, pods, nodes, jobs, runs, ranks, events."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from cockpit import format
from cockpit.cli.options import connect
from cockpit.cli.output import tables
from cockpit.cli.output.run_rows import rank_row, reported_rows, run_events, run_lines, run_row
from cockpit.cli.output.tables import Row, as_json, print_json, print_object, print_rows
from cockpit.cli.read import namespaces
from cockpit.model.error import NotAllowedError, UnreachableError, UsageError
from cockpit.store import selectors
from cockpit.store.store import Store

if TYPE_CHECKING:
    from cockpit.insight.metrics.cost import Cost

TABLES = {
    "groups": ("name", "desired", "ready", "min", "max", "note"),
    "pods": (
        "name", "group", "phase", "ready", "restarts", "ip", "host", "gpus", "ranks", "reason"
    ),
    "nodes": ("name", "ip", "is_head", "alive", "cpu_percent", "memory_used_bytes"),
    "kubernetes nodes": ("name", "ready", "cordoned", "pods", "cpus", "gpus", "version", "reason"),
    "jobs": (
        "name", "status", "rayjob", "deployment", "cluster", "started_s", "ended_s", "entrypoint"
    ),
    "runs": ("name", "id", "state", "attempt", "world_size", "step", "loss", "message"),
    "ranks": ("rank", "pod", "attempt", "step", "loss", "samples_per_s", "step_time_s"),
    "events": ("at_s", "kind", "name", "reason", "message"),
}  # fmt: skip
WIDE = {
    "groups": ("resources.cpus", "resources.gpus", "resources.memory_bytes", "hosts", "autoscaled"),
    "pods": ("node_type", "created_s", "replica", "stage", "uid"),
    "nodes": ("memory_total_bytes", "hostname", "id", "state_message"),
    "kubernetes nodes": ("type", "ip", "memory_bytes", "created_s", "taints", "problems"),
    "jobs": ("queue", "ray_id", "driver_node_id", "message"),
    "runs": ("phase", "samples_per_s", "started_s", "ended_s", "submission_id"),
    "ranks": (
        "data_wait_s", "comm_s", "checkpoint_s", "tokens_per_s", "mfu_percent", "memory_bytes",
        "gpu_utilization_percent", "gpu_memory_bytes", "epoch", "at_s",
    ),
    "events": ("source",),
}  # fmt: skip
"""The columns that `-o wide` adds."""
NAMES = {"groups": "group/", "pods": "pod/", "nodes": "node/", "kubernetes nodes": "node/"}
"""What `-o name` prints before a name, as `kubectl` and `cockpit describe` take it."""
MAY_BE_EMPTY = (
    *("host", "gpus", "note", "rayjob", "deployment", "cluster"),
    *("step", "samples_per_s", "step_time_s"),
)
"""Columns that are hidden if they are empty in all rows: those of Kubernetes, and those that
require telemetry."""
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
HINTS = {
    "local": "cockpit status shows each source; cockpit local status what is left of a cluster.",
    "address": "Is it the address of a Ray dashboard, such as http://head:8265?",
    "ssh": "cockpit up --on hosts FILE connects to each host, and starts a cluster.",
    "kuberay": "cockpit clusters shows what there is, cockpit doctor what is missing.",
}


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
    if args.verb == "status" and _prices_nodes():
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


def print_list(
    args: argparse.Namespace, listed: str, rows: Sequence[Row], first: Sequence[str] = ()
) -> None:
    """The rows of a verb in the format of `-o`, with the columns of `first` before the others."""
    print_rows(
        rows,
        [*first, *columns(listed, rows, wide=args.wide)],
        args.output,
        empty=f"No {args.verb}.",
        name_of=lambda row: _name(listed, row),
    )


def _name(listed: str, row: Row) -> str:
    if listed == "jobs":
        return f"rayjob/{row['rayjob']}" if row.get("rayjob") else f"job/{row['name']}"
    return f"{NAMES.get(listed, '')}{row['name']}"


def columns(listed: str, rows: Sequence[Row], *, wide: bool = False) -> list[str]:
    more = WIDE[listed] if wide else ()
    return [
        column
        for column in TABLES[listed] + more
        if column not in MAY_BE_EMPTY + more
        or any(tables.value_of(row, column) not in (None, "", []) for row in rows)
    ]


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
    if state is not None and (state.ok or state.absent):
        return
    if source == "backend" and store.pods and state is not None:
        # Its operator may have ended and its pods still exist: show them, and report the fault.
        print(f"{store.ref} is not well: {state.error}", file=sys.stderr)
        return
    if args.verb == "jobs" and store.jobs and state is not None:
        # RayJobs are Kubernetes' own: they are there without a head.
        print(f"Only RayJobs are listed: {state.error}", file=sys.stderr)
        return
    ref = session.backend.ref
    if state is not None and ref.backend == "kuberay":
        # A request for it alone shows whether it is a right, a name or the network.
        session.call(session.backend.manifest("cluster", ref.name))
    raise UnreachableError(
        f"The {source} source of {ref} gives no answer.",
        state.error if state else "it did not answer in time",
        HINTS.get(ref.backend, "cockpit status shows each source."),
    )


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
            print(f"Without {kind}: {state.error}", file=sys.stderr)


def rows_of(listed: str, store: Store, now_s: float) -> list[dict[str, Any]]:
    """A list as the verb of its name prints it, one JSON-ready object each, all with a `name`."""
    run = selectors.current_run(store)
    match listed:
        case "groups":
            return [as_json(group) for group in store.groups.values()]
        case "pods":
            return [
                as_json(pod) | {"ranks": list(selectors.ranks_on_pod(run, pod))}
                for pod in selectors.pods_in_order(store)
            ]
        case "nodes":
            return [
                {"name": node.hostname or node.ip} | as_json(node) for node in store.nodes.values()
            ]
        case "kubernetes nodes":
            return [
                as_json(node) | {"pods": sum(p.host == node.name for p in store.pods.values())}
                for node in store.kubernetes_nodes.values()
            ]
        case "jobs":
            return [{"name": job.id} | as_json(job) for job in store.jobs.values()]
        case "runs":
            return [run_row(run, now_s) for run in store.runs.values()]
        case "ranks":
            ranks = selectors.ranks_in_order(run) if run else []
            return [rank_row(store, rank) for rank in ranks]
        case _:
            found = [as_json(notice) for notice in store.notices]
            found += [row for run in store.runs.values() for row in run_events(run)]
            return sorted(found, key=lambda row: row["at_s"])


def status(store: Store, now_s: float) -> dict[str, Any]:
    """Return the complete state as one object."""
    run = selectors.current_run(store)
    spent = cost_so_far(store, now_s)
    ref = store.ref
    return {
        "cluster": {
            "name": ref.name if ref else "",
            "backend": ref.backend if ref else "",
            "context": ref.context if ref else "",
            "namespace": ref.namespace if ref else "",
            "health": store.health,
            "message": store.health_message,
            "ray_version": store.ray_version,
        },
        "groups": rows_of("groups", store, now_s),
        "pods": rows_of("pods", store, now_s),
        "jobs": rows_of("jobs", store, now_s),
        "run": run_row(run, now_s) if run else None,
        **({"cost": as_json(spent)} if spent is not None else {}),
        "ranks": rows_of("ranks", store, now_s),
        "sources": [as_json(source) for source in store.sources.values()],
    }


def cost_so_far(store: Store, now_s: float) -> Cost | None:
    """The cost of the current run, if `[cost]` sets prices; without it, nothing is imported."""
    from cockpit.config import file

    run, configured = selectors.current_run(store), file.read().tables.get("cost")
    if run is None or not configured:
        return None
    from cockpit.insight.metrics.cost import cost_of
    from cockpit.insight.metrics.prices import parse

    return cost_of(store, run, now_s, parse(configured))


def _prices_nodes() -> bool:
    from cockpit.config import file

    return bool(file.read().tables.get("cost", {}).get("node_hour"))


def print_status(store: Store, how: str, now_s: float) -> None:
    if how != "table":
        print_object(status(store, now_s), how)
        return
    message = f": {store.health_message}" if store.health_message else ""
    print(f"Cluster {store.ref} is {store.health.value}{message}")
    groups = rows_of("groups", store, now_s)
    print_rows(groups, columns("groups", groups), how, empty="No worker groups.")
    run = selectors.current_run(store)
    if run is None:
        going = [job.id for job in store.jobs.values() if not job.status.is_over]
        print(f"No training run. Jobs: {', '.join(going)}" if going else "No training run.")
    else:
        print("", *run_lines(run, now_s), sep="\n")
        if (spent := cost_so_far(store, now_s)) is not None and spent.text:
            print(f"Cost: {spent.text}")
        print_ranks(store, now_s)
    for name, age, why in selectors.stale_sources(store, now_s):
        state = "no data yet" if age is None else f"{format.age(age)} old"
        print(f"Source {name} is stale ({state}){': ' + why if why else ''}")


def print_ranks(store: Store, now_s: float) -> None:
    rows = rows_of("ranks", store, now_s)
    shown = columns("ranks", rows)
    run = selectors.current_run(store)
    if run is not None and selectors.only_reports(run):
        rows, shown = reported_rows(rows)
    print_rows(rows, shown, "table", empty="No ranks yet.")
