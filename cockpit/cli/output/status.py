"""The complete state as `cockpit status` prints it: as one object, or as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cockpit import format
from cockpit.cli.output.lists import columns, rows_of
from cockpit.cli.output.run_rows import reported_rows, run_lines, run_row
from cockpit.cli.output.tables import as_json, print_object, print_rows
from cockpit.store import selectors
from cockpit.store.store import Store

if TYPE_CHECKING:
    from cockpit.insight.metrics.cost import Cost


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


def prices_nodes() -> bool:
    """Whether `[cost]` has a price of each kind of node, for which the nodes are listed."""
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
