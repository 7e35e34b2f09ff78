"""Whether a run steps, since when, and the last update of each of its ranks."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.model.run import Phase, RunState
from cockpit.store.run import RankView, RunView
from cockpit.store.store import Store

FEW_RANKS = 64
"""Up to this many are all checked, one by one, if a check is expensive."""
_GOING = (RunState.RUNNING, RunState.UNKNOWN)
_WORKING = (Phase.FIRST_STEP, Phase.RUNNING)


class LastUpdates(Struct):
    """The last update of each rank, by the clock of the observer.

    A sample has the time of its node's clock, which may be off by minutes. Repeated observations
    record here when a sample was new, so that only one clock counts.
    """

    run_id: str = ""
    samples: dict[int, float] = field(default_factory=dict)
    """By rank: the time in its newest sample."""
    at_s: dict[int, float] = field(default_factory=dict)
    """By rank: when that sample was first seen."""

    def note(self, run: RunView, now_s: float) -> None:
        if run.id != self.run_id:
            self.run_id, self.samples, self.at_s = run.id, {}, {}
        for number, rank in run.ranks.items():
            if rank.sample is None:
                continue
            reported_s, before_s = rank.sample.at_s, self.samples.get(number)
            if reported_s != before_s:
                self.samples[number] = reported_s
                # When first seen, its age is unknown: its own time is used.
                self.at_s[number] = min(reported_s, now_s) if before_s is None else now_s

    def of(self, rank: RankView) -> float | None:
        if rank.sample is None:
            return None
        return self.at_s.get(rank.rank, rank.sample.at_s)


def is_going(run: RunView) -> bool:
    """The ranks of the newest attempt are at work, or about to be."""
    attempt = run.attempt
    if attempt is None or attempt.ended_s is not None or run.state not in _GOING:
        return False
    of_this = [phase for _, number, phase in run.phases[-3:] if number == attempt.number]
    return not of_this or of_this[-1] in _WORKING


def stepping_since(run: RunView) -> float | None:
    """When the newest attempt made its first step; None before it."""
    attempt = run.attempt
    if attempt is None or not is_going(run):
        return None
    return attempt.first_step_s


def as_it_ran(run: RunView) -> RunView:
    """Return the run at its last step: some measurements are empty after its end.

    The curves are shared, not copied.
    """
    attempts = dict(run.attempts)
    # The last attempt may have no step.
    stepped = [number for number, view in attempts.items() if view.first_step_s is not None]
    if not stepped:
        return run
    last = max(stepped)
    kept = {number: view for number, view in attempts.items() if number < last}
    kept[last] = replace(attempts[last], ended_s=None)
    going = (Phase.FIRST_STEP, Phase.RUNNING)
    phases = [p for p in run.phases if p[1] < last or (p[1] == last and p[2] in going)]
    return replace(run, state=RunState.RUNNING, attempts=kept, phases=phases)


def newest_s(run: RunView) -> float | None:
    """The time of the newest sample of any rank."""
    ends = [times[-1] for name in run.curves if (times := run.curves[name].times)]
    if len(run.ranks) <= FEW_RANKS:
        ends += [rank.sample.at_s for rank in run.ranks.values() if rank.sample is not None]
    return max(ends, default=None)


def live_ranks(run: RunView) -> list[RankView]:
    """Ranks of the newest attempt with data in it."""
    attempt = run.attempt
    if attempt is None:
        return []
    return [
        rank
        for rank in run.ranks.values()
        if rank.sample is not None
        and rank.sample.attempt == attempt.number
        and (rank.placement is not None or not attempt.placements)
    ]


def is_believed(store: Store, source: str, now_s: float, stale_s: float) -> bool:
    """Whether the source has current data.

    A source without health events (an import) counts as current.
    """
    state = store.sources.get(source)
    if state is None:
        return True
    if state.absent or not state.ok or state.ok_s is None:
        return False
    return now_s - max(state.ok_s, state.retry_at_s or 0.0) <= stale_s


def gpus_of(run: RunView) -> int:
    """GPUs that the newest attempt holds."""
    attempt = run.attempt
    return sum(len(placed.gpus) for placed in attempt.placements) if attempt else 0
