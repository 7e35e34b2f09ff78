"""Runs, attempts and ranks as the JSON-ready objects that the verbs print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cockpit import format
from cockpit.cli.output.tables import as_json
from cockpit.model.run import Checkpoint, Phase
from cockpit.model.text import one_line
from cockpit.store import selectors
from cockpit.store.attempt_events import attempt_events
from cockpit.store.run import AttemptView, RankView, RunView
from cockpit.store.store import Store

if TYPE_CHECKING:
    from cockpit.insight.metrics.stall import Stall


def run_events(run: RunView) -> Iterator[dict[str, Any]]:
    """The attempts of a run as events, in the form of the backend's notices."""
    shared = {"source": "telemetry", "kind": "Run", "name": run.name or run.id}
    for event in attempt_events(run):
        yield {
            "at_s": event.at_s,
            **shared,
            "reason": "AttemptEnded" if event.is_end else "AttemptStarted",
            "message": f"attempt {event.number} {event.message}",
            "warning": event.warning,
        }


def run_row(run: RunView, now_s: float) -> dict[str, Any]:
    stalled = _stall(run, now_s)
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


REPORTED_SHOWN = 6
"""A job may report hundreds of numbers."""


def run_lines(run: RunView, now_s: float) -> Iterator[str]:
    parts = [run.state.value]
    if run.attempt is not None:
        parts.append(f"attempt {run.attempt.number}")
    if run.step is not None:
        parts.append(f"step {run.step}")
    if run.phases and not run.state.is_over:
        since_s, _, phase = run.phases[-1]
        if phase is not Phase.RUNNING:
            parts.append(f"{phase.value} for {format.age(now_s - since_s)}")
    stalled = _stall(run, now_s)
    if stalled is not None:
        parts.append(f"STALLED for {format.duration(now_s - stalled.since_s)}")
    yield f"Run {run.name or run.id}: {', '.join(parts)}"
    if stalled is not None:
        bound = format.duration(stalled.bound_s)
        yield (
            "No step, report or checkpoint since then: longer than expected from its recent "
            f"steps (limit {bound})"
        )
        yield from _hang(run, now_s)
    if run.message:
        yield f"Message: {run.message}"
    ended = [run.attempts[number].reason for number in sorted(run.attempts)[:-1]]
    if ended:
        yield f"Last restart: {ended[-1]}"
    if run.metrics:
        reported = [f"{one_line(name, 40)} {value:.4g}" for name, value in run.metrics.items()]
        more = len(reported) - REPORTED_SHOWN
        rest = f" and {more} more" if more > 0 else ""
        yield f"Reported: {', '.join(reported[:REPORTED_SHOWN])}{rest}"
    if run.checkpoint is not None:
        yield f"Checkpoint: {_checkpoint(run.checkpoint, run.checkpoint_s, now_s)}"


def _stall(run: RunView, now_s: float) -> Stall | None:
    from cockpit.insight.metrics.stall import stall  # 8 ms: not for a cluster without a run

    return stall(run, now_s)


def _hang(run: RunView, now_s: float) -> Iterator[str]:
    from cockpit.insight.hang.verdict import verdict

    found = verdict(run, now_s)
    if found is not None and found.is_late:
        yield f"{found.sentence} See: cockpit hang"


def _checkpoint(checkpoint: Checkpoint, at_s: float | None, now_s: float) -> str:
    parts = [] if checkpoint.step is None else [f"step {checkpoint.step}"]
    if at_s is not None:
        parts.append(f"{format.age(now_s - at_s)} ago")
    if checkpoint.size_bytes is not None:
        parts.append(format.bytes_text(checkpoint.size_bytes))
    if checkpoint.took_s is not None:
        parts.append(f"saved in {format.duration(checkpoint.took_s)}")
    return ", ".join([*parts, one_line(checkpoint.path)])


def reported_rows(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of ranks with what each gave to its newest report, and the columns for it."""
    names = list(dict.fromkeys(name for row in rows for name in row["reported"]))[:REPORTED_SHOWN]
    filled = [row | {name: row["reported"].get(name) for name in names} for row in rows]
    return filled, ["rank", "pod", *names]
