"""The verbs that look once: status, groups, pods, nodes, jobs, runs, ranks, events."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from cockpit.cli import connect, output
from cockpit.cli.output import as_json, print_json, print_rows
from cockpit.model.error import UnreachableError
from cockpit.store import select
from cockpit.store.run import AttemptView, RankView, RunView
from cockpit.store.store import Store

TABLES = {
    "groups": ("name", "desired", "ready", "min", "max"),
    "pods": ("name", "group", "phase", "ready", "restarts", "ip", "ranks", "reason"),
    "nodes": ("name", "ip", "is_head", "alive", "cpu_percent", "memory_used_bytes"),
    "jobs": ("name", "status", "started_s", "ended_s", "entrypoint"),
    "runs": ("name", "id", "state", "attempt", "world_size", "step", "loss", "message"),
    "ranks": ("rank", "pod", "attempt", "step", "loss", "samples_per_s", "step_time_s"),
    "events": ("at_s", "kind", "name", "reason", "message"),
}
SOURCES = {
    "groups": ("backend",),
    "pods": ("backend", "telemetry"),
    "nodes": ("ray",),
    "jobs": ("ray",),
    "events": ("backend", "telemetry"),
}
"""Which sources a verb waits for, the one that it cannot do without first; the rest of the verbs
wait for all of them."""
ALL = ("telemetry", "backend", "ray")


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    output.arguments(parser)
    parser.add_argument(
        "--watch", action="store_true", help="go on: a line of JSON at each change, until Ctrl-C"
    )


def run(args: argparse.Namespace) -> int:
    needs = SOURCES.get(args.verb, ALL)
    with connect.session(args, sources=needs) as session:
        connect.wait_for(session, needs)
        if args.watch:
            return _watch(args, session)
        _require_answer(args, session.store, needs[0])
        if args.verb == "status":
            _print_status(session.store, args.output, session.clock())
        else:
            rows = rows_of(args.verb, session.store)
            print_rows(rows, TABLES[args.verb], args.output, empty=f"No {args.verb}.")
    return 0


def _watch(args: argparse.Namespace, session: connect.Session) -> int:
    last: Any = None
    while True:
        now: Any = (
            status(session.store) if args.verb == "status" else rows_of(args.verb, session.store)
        )
        if now != last:
            print_json({"at_s": session.clock(), args.verb: now}, indent=None)
            last = now
        session.wait_for_change()


def _require_answer(args: argparse.Namespace, store: Store, source: str) -> None:
    """A list from a source that failed would be a lie: raise what the source said."""
    state = store.sources.get(source)
    if args.verb == "status" or (state is not None and (state.ok or state.absent)):
        return
    if source == "backend" and store.pods and state is not None:
        # Its operator may be gone, and its pods still be there: they are shown, and the fault told.
        print(f"{store.ref} is not well: {state.error}", file=sys.stderr)
        return
    raise UnreachableError(
        f"The {source} source of {store.ref or 'the cluster'} gives no answer.",
        state.error if state else "it did not answer in time",
        "cockpit status shows each source; cockpit local status what is left of a cluster.",
    )


def rows_of(verb: str, store: Store) -> list[dict[str, Any]]:
    """The list that the verb prints, one JSON-ready object each, all with a `name`."""
    run = select.current_run(store)
    match verb:
        case "groups":
            return [as_json(group) for group in store.groups.values()]
        case "pods":
            return [
                as_json(pod) | {"ranks": list(select.ranks_on_pod(store, run, pod))}
                for pod in select.pods_in_order(store)
            ]
        case "nodes":
            return [
                {"name": node.hostname or node.ip} | as_json(node) for node in store.nodes.values()
            ]
        case "jobs":
            return [{"name": job.id} | as_json(job) for job in store.jobs.values()]
        case "runs":
            return [run_row(run) for run in store.runs.values()]
        case "ranks":
            ranks = select.ranks_in_order(run) if run else []
            return [rank_row(store, rank) for rank in ranks]
        case _:
            found = [as_json(notice) for notice in store.notices]
            found += [row for run in store.runs.values() for row in run_events(run)]
            return sorted(found, key=lambda row: row["at_s"])


def run_events(run: RunView) -> Iterator[dict[str, Any]]:
    """The attempts of a run as events, in the form of the backend's notices."""
    shared = {"source": "telemetry", "kind": "Run", "name": run.name or run.id}
    for number, attempt in run.attempts.items():
        if attempt.started_s is not None:
            where = "" if attempt.first_step is None else f", first step {attempt.first_step}"
            message = f"attempt {number} with {len(attempt.placements)} ranks{where}"
            yield {
                "at_s": attempt.started_s,
                **shared,
                "reason": "AttemptStarted",
                "message": message,
                "warning": False,
            }
        if attempt.ended_s is not None:
            yield {
                "at_s": attempt.ended_s,
                **shared,
                "reason": "AttemptEnded",
                "message": f"attempt {number}: {attempt.reason or 'finished'}",
                "warning": attempt.reason not in ("", "finished"),
            }


def run_row(run: RunView) -> dict[str, Any]:
    return {
        "name": run.name or run.id,
        "id": run.id,
        "state": run.state,
        "job_id": run.job_id,
        "submission_id": run.submission_id,
        "attempt": run.attempt.number if run.attempt else None,
        "attempts": [attempt_row(attempt) for _, attempt in sorted(run.attempts.items())],
        "world_size": run.world_size,
        "step": run.step,
        "loss": run.loss.last,
        "samples_per_s": run.samples_per_s.last,
        "metrics": dict(run.metrics),
        "checkpoint": as_json(run.checkpoint),
        "started_s": run.started_s,
        "ended_s": run.ended_s,
        "message": run.message,
    }


def attempt_row(attempt: AttemptView) -> dict[str, Any]:
    return {
        "attempt": attempt.number,
        "started_s": attempt.started_s,
        "ended_s": attempt.ended_s,
        "reason": attempt.reason,
        "first_step": attempt.first_step,
        "last_step": attempt.last_step,
    }


def rank_row(store: Store, rank: RankView) -> dict[str, Any]:
    pod = select.pod_of_rank(store, rank)
    sample = as_json(rank.sample) if rank.sample else {}
    return {
        "name": f"rank-{rank.rank}",
        "rank": rank.rank,
        "pod": pod.name if pod else "",
        "steps": rank.steps,
        "loss_first": rank.loss_first,
    } | sample


def status(store: Store) -> dict[str, Any]:
    """The whole present in one object."""
    run = select.current_run(store)
    ref = store.ref
    return {
        "cluster": {
            "name": ref.name if ref else "",
            "backend": ref.backend if ref else "",
            "health": store.health,
            "message": store.health_message,
            "ray_version": store.ray_version,
        },
        "groups": rows_of("groups", store),
        "pods": rows_of("pods", store),
        "jobs": rows_of("jobs", store),
        "run": run_row(run) if run else None,
        "ranks": rows_of("ranks", store),
        "sources": [as_json(source) for source in store.sources.values()],
    }


def _print_status(store: Store, how: str, now_s: float) -> None:
    if how != "table":
        print_json(status(store), indent=2 if how == "json" else None)
        return
    message = f": {store.health_message}" if store.health_message else ""
    print(f"Cluster {store.ref} is {store.health.value}{message}")
    print_rows(rows_of("groups", store), TABLES["groups"], how, empty="No worker groups.")
    run = select.current_run(store)
    if run is None:
        print("No training run.")
    else:
        attempt = run.attempt
        number = f", attempt {attempt.number}" if attempt else ""
        print(f"\nRun {run.name or run.id}: {run.state.value}{number}, step {run.step or 0}")
        if run.message:
            print(f"It says: {run.message}")
        ended = [run.attempts[number].reason for number in sorted(run.attempts)[:-1]]
        if ended:
            print(f"Last restart: {ended[-1]}")
        print_rows(rows_of("ranks", store), TABLES["ranks"], how, empty="No ranks yet.")
    for name, age, why in select.stale_sources(store, now_s):
        heard = "never heard" if age is None else f"{age:.0f} s old"
        print(f"Source {name} is stale ({heard}){': ' + why if why else ''}")
