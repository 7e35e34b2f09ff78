"""`cockpit demo --headless`: the demo without a screen. It kills a worker half-way and measures."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from cockpit.actions.drills import DrillActions
from cockpit.cli.cluster import demo_cluster
from cockpit.cli.drill import progress
from cockpit.cli.output import tables
from cockpit.cli.output.run_rows import rank_row
from cockpit.cli.output.streams import log
from cockpit.drills.plan.kill import plan_kill
from cockpit.format import in_seconds
from cockpit.insight.recovery.text import sentence
from cockpit.model.clock import server_time
from cockpit.model.drill import Recovery
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store import selectors
from cockpit.store.run import RunView
from cockpit.store.store import Store

START_TIMEOUT_S = 180.0
"""From the job's submission to the first checkpoint."""
EXTRA_S = 120.0
"""A recovery that is under way when the time is up is watched for as long as this."""
AFTER_S = 5.0
"""Training is watched for at least this long after the recovery, to see that it continues."""


def demo(args: argparse.Namespace, show: Callable[[dict[str, Any]], None]) -> bool:
    """Run the demo without a UI. Return whether the run recovered, after the cluster is deleted.

    `show` gets the summary before the deletion, so that an interruption does not lose it.
    """
    ends = time.monotonic() + args.seconds
    half = time.monotonic() + args.seconds / 2
    with ExitStack() as after:

        def claimed() -> None:
            # Before it is up: after an interrupt at any moment it is taken down.
            after.callback(demo_cluster.end, args, log)

        backend = demo_cluster.start(args, log, claimed)
        session = after.enter_context(builder.session_on(backend))
        actions = DrillActions(session)
        job_id = session.call(actions.launch("checkpointed", demo_cluster.settings(args)))
        log(f"Launched {job_id}; waiting for its first checkpoint …")
        run_id = _wait_until_it_trains(session, job_id, half)
        measured = _kill_one(session, actions, ends)
        session.wait(lambda store: False, max(AFTER_S, ends - time.monotonic()))
        show(summarise(session.store, run_id, measured))
        try:
            session.call(actions.stop_job(job_id))
        except CockpitError as error:
            log(one_line(f"Job {job_id} was not stopped: {error}"))
        return measured.recovered


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
    parts = [
        f"It is {job.status.value if job else 'not listed'} after {in_seconds(START_TIMEOUT_S)}"
    ]
    if run is not None:
        ranks = ", ".join(map(str, sorted(run.ranks))) or "none"
        parts.append(f"its run is {run.state.value} at step {run.step or 0} with ranks: {ranks}")
    stale = [f"{name}: {why}" for name, _, why in selectors.stale_sources(store, server_time())]
    return "; ".join(parts + stale)


def _kill_one(session: Session, actions: DrillActions, ends: float) -> Recovery:
    """SIGKILL the pod of the highest rank, and follow the run until it steps again."""
    run = selectors.current_run(session.store)
    ranks = selectors.ranks_in_order(run) if run else []
    if run is None or run.state.is_over or not ranks:
        raise CockpitError(
            "The run was over before half of the time had passed, so nothing was killed.",
            run.message if run else "",
            "Increase --epochs or reduce --seconds.",
        )
    recover_s = max(0.0, ends - time.monotonic()) + EXTRA_S
    plan = plan_kill(session.store, str(ranks[-1].rank), 0.0, recover_s)
    for line in plan.lines:
        log(line)
    measured = progress.kill(session, actions, plan)
    log(sentence(measured))
    return measured


def summarise(store: Store, run_id: str, measured: Recovery) -> dict[str, Any]:
    """The summary: its keys are stable for scripts."""
    run = store.runs[run_id]
    return {
        "cluster": [
            {"name": pod.name, "group": pod.group, "phase": pod.phase, "ready": pod.ready}
            for pod in selectors.pods_in_order(store)
        ],
        "ranks": [_rank(store, run, rank.rank) for rank in selectors.ranks_in_order(run)],
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
        "drill": progress.as_row(measured),
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
        "loss_last": rank.curves["loss"].last,
        "samples_per_s": rank.curves["samples_per_s"].last,
    }


def print_table(summary: dict[str, Any]) -> None:
    tables.print_table(summary["cluster"], ("name", "group", "phase", "ready"))
    print()
    columns = ("rank", "pod", "steps", "loss_first", "loss_last", "samples_per_s")
    tables.print_table(summary["ranks"], columns)
    accuracy = summary["accuracy"]
    if accuracy is not None:
        print(f"\nheld-out accuracy {accuracy:.2%}")
