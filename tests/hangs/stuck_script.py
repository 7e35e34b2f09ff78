"""A script that knows nothing of cockpit, run until its rank 1 is stuck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cockpit.insight.hang.types import Kind, Verdict
from cockpit.insight.hang.verdict import verdict
from cockpit.insight.metrics.goodput import STALLED, goodput
from cockpit.launch import submission
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.store.run import RunView
from cockpit.store.store import Store

SCRIPTS = Path(__file__).parents[1] / "training" / "scripts"
START_TIMEOUT_S, HANG_TIMEOUT_S, EXPLAINED_WITHIN_S = 300.0, 120.0, 30.0
STALLED_TIMEOUT_S = 60.0
"""The bound of a stall is learnt from the run's reports, which are rarer than its steps."""
PACE_S = 10.0
"""Of reports before the hang: from them the watchdog learns how long is too long."""


def hang(
    session: Session, script: str, arguments: tuple[str, ...], name: str, stick: Callable[[], None]
) -> tuple[RunView, Verdict]:
    """Launch `script`, let it run, call `stick`, and return the run with the verdict on it."""
    spec = submission.script_spec(("python", script, *arguments), SCRIPTS)

    async def launch() -> None:
        async with Dashboard(session.backend.dashboard) as dashboard:
            await submission.launch(dashboard, spec)

    session.call(launch(), 60.0)

    def run_of(store: Store) -> RunView | None:
        return next((run for run in store.runs.values() if run.name == name), None)

    def has_pace(store: Store) -> bool:
        run = run_of(store)
        attempt = run.attempt if run else None
        if run is None or attempt is None or len(attempt.placements) < 2:
            return False
        times = [series.times for series in map(run.reported.__getitem__, run.reported)]
        return any(of and of[-1] - of[0] > PACE_S for of in times)

    assert session.wait(has_pace, START_TIMEOUT_S), (session.store.runs, session.store.jobs)
    stick()
    stuck_s = session.clock()
    found: list[Verdict] = []

    def is_explained(store: Store) -> bool:
        run = run_of(store)
        assert run is not None
        now = verdict(run, session.clock())
        if now is not None and now.is_late:
            found.append(now)
        return bool(found)

    assert session.wait(is_explained, HANG_TIMEOUT_S), run_of(session.store)
    took_s = session.clock() - stuck_s
    run = run_of(session.store)
    assert run is not None
    assert took_s <= EXPLAINED_WITHIN_S, (took_s, found)
    return run, found[0]


def check(session: Session, run: RunView, found: Verdict, script: str) -> None:
    """The verdict names rank 1, where it is, and who waits; the time counts as stalled."""
    assert found.kind is Kind.USER, found.sentence
    assert found.ranks == (1,), found.sentence
    assert f"`stuck` ({script}:" in found.sentence, found.sentence
    assert "rank 0 " in found.sentence, found.sentence

    def stalled_s() -> float:
        spent = goodput(run, session.clock())
        return spent.lost_s.get(STALLED, 0.0) if spent is not None else 0.0

    assert session.wait(lambda store: stalled_s() > 0.0, STALLED_TIMEOUT_S)


def end(session: Session) -> None:
    """Stop all jobs, so that the next one finds its CPUs free."""
    session.drain()
    going = [job.id for job in session.store.jobs.values() if not job.status.is_over]

    async def stop() -> None:
        async with Dashboard(session.backend.dashboard) as dashboard:
            for job_id in going:
                await submission.stop(dashboard, job_id)

    session.call(stop(), 60.0)
    assert session.wait(
        lambda store: all(store.jobs[job_id].status.is_over for job_id in going), HANG_TIMEOUT_S
    )
