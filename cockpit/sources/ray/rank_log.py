"""The log of one rank's own process, wherever its newest attempt runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import MissingError
from cockpit.sources.ray.log_follower import Locate, LogFile
from cockpit.sources.ray.logs import LogSource


async def any_job() -> str:
    return ""


def rank_log(
    dashboard: Dashboard, rank: int, submission: Callable[[], Awaitable[str]] = any_job
) -> Locate:
    """Find the log of the rank's process in the newest attempt of the newest Ray Train run.

    `submission`: the job of the run, if known: for a run without Ray Train the log of an earlier
    run must not be shown. MissingError without such a rank, or without its state.
    """

    async def locate() -> LogFile:
        runs, job = await dashboard.train_runs(), await submission()
        for run in runs:
            if job and run.submission_id and run.submission_id != job:
                continue
            workers = run.attempts[-1].workers if run.attempts else ()
            if not workers and not run.state.is_over:
                return LogFile("", "")  # a new attempt whose ranks are not placed yet
            for worker in workers:
                if worker.rank == rank and worker.log_file:
                    return LogFile(worker.node_id, worker.log_file, run.state.is_over)
            why = "Its run has no such rank now, or Ray has not reported its log file."
            break
        else:
            why = (
                f"{job or 'It'} has no run of Ray Train that is listed: without Ray Train, or "
                "RAY_TRAIN_ENABLE_STATE_TRACKING=1, its ranks are in the job's log alone."
            )
        raise MissingError(f"There is no log of rank {rank}.", why, status=404)

    return locate


def rank_log_source(
    dashboard: Dashboard, rank: int, submission: Callable[[], Awaitable[str]] = any_job
) -> LogSource:
    """One rank's log, `rank:N`; ends with its run."""
    return LogSource(f"rank:{rank}", dashboard, rank_log(dashboard, rank, submission))
