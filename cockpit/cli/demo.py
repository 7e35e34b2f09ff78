"""`cockpit demo`: a local Ray cluster, a checkpointed training run on it, and the screen.

`--headless` does the same without a screen, kills a worker half-way and prints what came of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from cockpit.actions import ClusterActions
from cockpit.backends.local import GroupSpec, LocalBackend, down, status, up
from cockpit.cli import confirm, connect, output, recovery
from cockpit.cli.look import rank_row
from cockpit.drills.kill import plan_kill
from cockpit.model.cluster import Resources
from cockpit.model.drill import Recovery
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.model.event import DrillInjected
from cockpit.model.text import one_line
from cockpit.session import Session
from cockpit.store import select
from cockpit.store.run import RunView
from cockpit.store.store import Store

START_TIMEOUT_S = 180.0
"""From the job's submission to the first checkpoint."""
EXTRA_S = 120.0
"""A recovery that is under way when the time is up is watched for as long as this."""
AFTER_S = 5.0
"""Training is watched for at least this long after the recovery, to see that it goes on."""

Say = Callable[[str], None]


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("--workers", type=int, default=2, help="worker pods and ranks (default 2)")
    parser.add_argument("--name", default="demo", help="the cluster's name (default: demo)")
    parser.add_argument("--epochs", type=int, default=300, help="epochs to train (default 300)")
    parser.add_argument("--headless", action="store_true", help="no screen: kill, measure, print")
    parser.add_argument(
        "--seconds", type=float, default=90.0, help="how long without a screen (default 90)"
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    output.arguments(parser)


def run(args: argparse.Namespace) -> int:
    confirm.refuse_read_only(args)
    if args.workers < 1:
        raise UsageError("A demo needs at least 1 worker.", todo="Give --workers 1 or more.")
    if not args.headless:
        from cockpit.cli import screen

        return screen.demo(args)
    summary = headless(args)
    if args.output == "table":
        _print_table(summary)
    else:
        output.print_json(summary, indent=2 if args.output == "json" else None)
    return int(ExitCode.DONE if summary["drill"]["recovered"] else ExitCode.FAILED)


def cluster_up(args: argparse.Namespace, say: Say) -> LocalBackend:
    """The demo's cluster: one CPU a worker, so that each rank gets a pod of its own."""
    import asyncio

    group = GroupSpec(
        "workers",
        replicas=args.workers,
        min=0,
        max=max(4, args.workers * 2),
        resources=Resources(cpus=1.0),
    )
    asyncio.run(up(args.name, [group], progress=say))
    return LocalBackend(args.name)


def cluster_down(args: argparse.Namespace, say: Say) -> None:
    if args.keep:
        say(f"Cluster {args.name} stays up; remove it with: cockpit local down {args.name}")
    else:
        say(f"Taking down cluster {args.name} …")
        down(args.name)


def settings(args: argparse.Namespace) -> dict[str, str]:
    """The job's settings; its checkpoints go with the cluster."""
    cluster = status(args.name)
    assert cluster is not None
    return {
        "workers": str(args.workers),
        "epochs": str(args.epochs),
        "storage_path": str(cluster.directory / "results"),
    }


def headless(args: argparse.Namespace) -> dict[str, Any]:
    """The whole demo without a screen: the summary, once everything is down again."""
    ends = time.monotonic() + args.seconds
    half = time.monotonic() + args.seconds / 2
    backend = cluster_up(args, _say)
    with ExitStack() as after:
        after.callback(cluster_down, args, _say)
        session = after.enter_context(connect.session_on(backend))
        actions = ClusterActions(backend, session.clock)
        job_id = session.call(actions.launch("checkpointed", settings(args)))
        _say(f"Launched {job_id}; waiting for its first checkpoint …")
        run_id = _wait_until_it_trains(session, job_id, half)
        measured = _kill_one(session, actions, ends)
        session.wait(lambda store: False, max(AFTER_S, ends - time.monotonic()))
        summary = summarise(session.store, run_id, measured)
        session.call(actions.stop_job(job_id))
        return summary


def _wait_until_it_trains(session: Session, job_id: str, not_before: float) -> str:
    """Until the run has a checkpoint and the first half of the time is over; the run's id."""

    def run_of(store: Store) -> RunView | None:
        return next((r for r in store.runs.values() if r.submission_id == job_id), None)

    def over(store: Store) -> bool:
        job = store.jobs.get(job_id)
        return job is not None and job.status.is_over

    def trains(store: Store) -> bool:
        run = run_of(store)
        return over(store) or (run is not None and bool(run.checkpoints))

    began = session.wait(trains, START_TIMEOUT_S)
    if over(session.store) or not began:
        raise CockpitError(
            f"Job {job_id} made no checkpoint.",
            _how_far(session.store, job_id, run_of(session.store)),
            f"Keep the cluster with --keep, and see: cockpit logs {job_id}",
        )
    session.wait(over, max(0.0, not_before - time.monotonic()))
    run = run_of(session.store)
    assert run is not None
    return run.id


def _how_far(store: Store, job_id: str, run: RunView | None) -> str:
    job = store.jobs.get(job_id)
    if job is not None and job.status.is_over:
        return f"It is {job.status.value}: {one_line(job.message)}"
    parts = [f"It is {job.status.value if job else 'not listed'} after {START_TIMEOUT_S:g} s"]
    if run is not None:
        ranks = ", ".join(map(str, sorted(run.ranks))) or "none"
        parts.append(f"its run is {run.state.value} at step {run.step or 0} with ranks: {ranks}")
    stale = [f"{name}: {why}" for name, _, why in select.stale_sources(store, time.time())]
    return "; ".join(parts + stale)


def _kill_one(session: Session, actions: ClusterActions, ends: float) -> Recovery:
    """SIGKILL the pod of the highest rank, and follow the run until it steps again."""
    run = select.current_run(session.store)
    ranks = select.ranks_in_order(run) if run else []
    if run is None or run.state.is_over or not ranks:
        raise CockpitError(
            "The run was over before half of the time had passed, so nothing was killed.",
            run.message if run else "",
            "Give more --epochs or fewer --seconds.",
        )
    plan = plan_kill(session.store, str(ranks[-1].rank), 0.0)
    for line in plan.lines:
        _say(line)
    drill = session.call(actions.kill(plan))
    session.dispatch(DrillInjected(at_s=drill.injected_s, source="user", drill=drill))
    measured = recovery.follow(session, drill, max(0.0, ends - time.monotonic()) + EXTRA_S)
    _say(recovery.sentence(measured))
    return measured


def summarise(store: Store, run_id: str, measured: Recovery) -> dict[str, Any]:
    """The summary: its keys are a promise to whoever scripts the demo."""
    run = store.runs[run_id]
    return {
        "cluster": [
            {"name": pod.name, "group": pod.group, "phase": pod.phase, "ready": pod.ready}
            for pod in select.pods_in_order(store)
        ],
        "ranks": [_rank(store, run, rank.rank) for rank in select.ranks_in_order(run)],
        "samples": run.samples_seen,
        "attempts": [
            {
                "attempt": a.number,
                "first_step": a.first_step,
                "last_step": a.last_step,
                "reason": a.reason,
            }
            for _, a in sorted(run.attempts.items())
        ],
        "drill": recovery.as_row(measured),
        "accuracy": run.metrics.get("accuracy"),
    }


def _rank(store: Store, run: RunView, number: int) -> dict[str, Any]:
    rank = run.ranks[number]
    row = rank_row(store, rank)
    return {
        "rank": number,
        "pod": row["pod"],
        "step": row.get("step"),
        "steps": rank.steps,
        "loss_first": rank.loss_first,
        "loss_last": rank.loss.last,
        "samples_per_s": rank.samples_per_s.last,
    }


def _print_table(summary: dict[str, Any]) -> None:
    output.print_table(summary["cluster"], ("name", "group", "phase", "ready"))
    print()
    columns = ("rank", "pod", "steps", "loss_first", "loss_last", "samples_per_s")
    output.print_table(summary["ranks"], columns)
    accuracy = summary["accuracy"]
    if accuracy is not None:
        print(f"\nheld-out accuracy {accuracy:.2%}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
