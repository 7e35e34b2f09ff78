"""Runs, attempts and ranks as the JSON-ready objects that the verbs print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cockpit.cli.output.tables import as_json
from cockpit.insight.metrics.stall import stall
from cockpit.store import selectors
from cockpit.store.run import AttemptView, RankView, RunView
from cockpit.store.store import Store


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


def run_row(run: RunView, now_s: float) -> dict[str, Any]:
    stalled = stall(run, now_s)
    return {
        "name": run.name or run.id,
        "id": run.id,
        "state": run.state,
        "job_id": run.job_id,
        "submission_id": run.submission_id,
        "attempt": run.attempt.number if run.attempt else None,
        "attempts": [attempt_row(attempt) for _, attempt in sorted(run.attempts.items())],
        "world_size": run.world_size,
        "phase": run.phases[-1][2] if run.phases and not run.state.is_over else None,
        "stalled_since_s": None if stalled is None else stalled.since_s,
        "step": run.step,
        "loss": selectors.loss_of(run),
        "samples_per_s": run.curves["samples_per_s"].last,
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
    pod = selectors.pod_of_rank(store, rank)
    sample = as_json(rank.sample) if rank.sample else {}
    return {
        "name": f"rank-{rank.rank}",
        "rank": rank.rank,
        "pod": pod.name if pod else "",
        "steps": rank.steps,
        "loss_first": rank.loss_first,
        "reported": dict(rank.reported),
    } | sample
