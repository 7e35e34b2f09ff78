"""From a rank's number to the process that runs it."""

from __future__ import annotations

from cockpit.cli.options import connect
from cockpit.model.error import UsageError
from cockpit.session.session import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.profiling import Process
from cockpit.store.selectors import current_run, ranks_in_order


def process_of(session: Session, rank: str) -> Process:
    """The rank's process in the newest attempt. UsageError when there is none.

    From the telemetry of the run, else from what Ray Train knows of it.
    """
    if not rank.isdecimal():
        raise UsageError(f"{rank!r} is no rank.", "A rank is a number.", "See: cockpit ranks")
    connect.wait_for(session, ("telemetry",))
    run = current_run(session.store)
    view = run.ranks.get(int(rank)) if run else None
    if view is not None and view.placement is not None:
        placed = view.placement
        return Process(placed.pid, placed.node_ip, placed.node_id)
    known = [one.rank for one in ranks_in_order(run)] if run else []
    if not known and (found := session.call(_of_train(session, int(rank)))) is not None:
        return found
    why = "No training run is known on this cluster."
    if run is not None:
        said = few(tuple(known)) if known else "none yet"
        why = f"The ranks of {run.name or run.id} are: {said}."
    raise UsageError(f"There is no rank {rank}.", why, "See: cockpit runs")


def few(ranks: tuple[int, ...]) -> str:
    """`0, 1`, or from the first to the last where they follow one another."""
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]} to {ranks[-1]}"
    return ", ".join(map(str, ranks))


async def _of_train(session: Session, rank: int) -> Process | None:
    async with Dashboard(session.backend.dashboard) as dashboard:
        for run in await dashboard.train_runs():
            for worker in run.attempts[-1].workers if run.attempts else ():
                if worker.rank == rank:
                    return Process(worker.pid, worker.node_ip, worker.node_id)
    return None
