"""The rows and columns of the verbs that list: groups, pods, nodes, jobs, runs, ranks, events."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from cockpit.cli.output import tables
from cockpit.cli.output.run_rows import rank_row, run_events, run_row
from cockpit.cli.output.tables import Row, as_json, print_rows
from cockpit.store import selectors
from cockpit.store.store import Store

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
