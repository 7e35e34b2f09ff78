"""The ends whose logs are worth reading: of failed jobs, and of attempts that ended badly."""

from __future__ import annotations

import re

from cockpit.insight.causes.verdict import ended_badly
from cockpit.model.death import BadEnd
from cockpit.model.run import JobStatus
from cockpit.store.store import Store

RECENT_S = 3_600.0
ATTEMPTS = 5
"""Of each run, the newest that ended badly."""
MOST = 20
SETTLE_S = 2.0
"""The last lines of ranks and the status of the job arrive shortly after the end."""
_RANKS = re.compile(r"\branks? (\d+(?:, \d+)*)\b")


def bad_ends(store: Store, now_s: float) -> list[BadEnd]:
    """Ends of the last hour, the newest first, that no log has been read of."""
    found: list[tuple[float, BadEnd]] = []
    for run in store.runs.values():
        bad = [attempt for attempt in run.attempts.values() if ended_badly(attempt)]
        for attempt in sorted(bad, key=lambda one: one.number)[-ATTEMPTS:]:
            named = _RANKS.search(attempt.reason)
            ranks = named[1].split(", ") if named is not None else None
            placed = tuple(
                one for one in attempt.placements if ranks is None or str(one.rank) in ranks
            )
            end = BadEnd(run.submission_id, run.id, attempt.number, placed)
            found.append((attempt.ended_s or 0.0, end))
    for job in store.jobs.values():
        if job.status is JobStatus.FAILED and job.ended_s is not None:
            found.append((job.ended_s, BadEnd(job.id)))
    found.sort(key=lambda one: -one[0])
    return [
        end
        for ended_s, end in found
        if SETTLE_S <= now_s - ended_s <= RECENT_S and end.key not in store.excerpts
    ][:MOST]
