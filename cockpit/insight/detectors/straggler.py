"""Ranks that slow down the others.

In data-parallel training every rank's step takes the same time, since all wait for the slowest in
the all-reduce. The slow rank waits least. The work of a rank is

work = step_time - comm (step_time if communication is not reported)

which input waits are part of: a rank with a slow disk is a straggler too. Its score is a robust z
(Iglewicz & Hoaglin 1993) against the other ranks, itself left out so that it works with two ranks,
with a floor of 4 % of the step so that equal ranks do not differ by luck:

score = (work - median(others)) / max(1.4826 * MAD(others), 0.04 * step_time)

Each rank's work is the median of its last eight records of the last minute. A rank whose work grew
since earlier in this attempt, and by more than that of the others, is reported too: the stages of a
pipeline always differ, and only a change is a problem.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from msgspec import Struct

from cockpit.format import duration
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import FEW_RANKS, live_ranks, newest_s, stepping_since
from cockpit.insight.metrics.robust_statistics import median, spread
from cockpit.model.alert import Finding, Severity
from cockpit.store.run import RankView, RunView

RECORDS = 8
RECENT_S = 60.0
FLOOR = 0.04
_LEFT_OUT_UP_TO = 32
"""In larger worlds one rank more or less does not move the median."""


class Standing(Struct, frozen=True):
    """One rank among the others."""

    work_s: float
    """Its own work a step: the step without the wait for the others."""
    others_s: float
    """The median of the others'."""
    step_time_s: float
    score: float
    """In robust standard deviations above the others; below 0 it is faster."""

    @property
    def excess_percent(self) -> float:
        """Of a step: what all would gain if it were like the others."""
        return 100.0 * (self.work_s - self.others_s) / self.step_time_s


def scores(run: RunView) -> dict[int, float]:
    """By rank, for those with data in the last minute; empty with fewer than two of them."""
    return {rank: standing.score for rank, standing in standings(run).items()}


def standings(run: RunView) -> dict[int, Standing]:
    """By rank. In a large run, of the ranks reported recently, and of the rank that waits least."""
    works = _works(run)
    found = _against_each_other(works) if len(works) > 1 else {}
    least = _least_waiting(run)
    if least is not None:
        rank, now = least
        # The last records of a rank in rotating detail may be minutes old: this tick is newer.
        if rank not in found or found[rank].score < now.score:
            found[rank] = now
    return found


def _works(run: RunView) -> dict[int, tuple[float, float]]:
    """By rank: its work and its step time, in seconds."""
    newest, step = newest_s(run), run.step or 0
    if newest is None or stepping_since(run) is None:
        return {}
    found = {}
    for rank in live_ranks(run):
        sample = rank.sample
        steps = rank.curves["step_time_s"].values[-RECORDS:]
        if sample is None or len(steps) < RECORDS // 2:
            continue
        step_s = median(steps)
        # A rank without data lags in steps too; one whose clock is behind does not.
        if sample.at_s < newest - RECENT_S and (step - sample.step) * step_s > RECENT_S:
            continue
        comms = rank.curves["comm_s"].values[-RECORDS:]
        comm_s = median(comms) if sample.comm_s is not None and comms else 0.0
        if step_s > 0:
            found[rank.rank] = (max(0.0, step_s - comm_s), step_s)
    return found


def _against_each_other(works: Mapping[int, tuple[float, float]]) -> dict[int, Standing]:
    step_s = median(step for _, step in works.values())
    floor_s = FLOOR * step_s
    everyone = [work for work, _ in works.values()]
    centre, sigma = median(everyone), spread(everyone)
    found = {}
    for at, (rank, (work, _)) in enumerate(works.items()):
        if len(everyone) <= _LEFT_OUT_UP_TO:
            others = everyone[:at] + everyone[at + 1 :]
            centre = median(others)
            sigma = spread(others, centre)
        found[rank] = Standing(work, centre, step_s, (work - centre) / max(sigma, floor_s))
    return found


def _least_waiting(run: RunView) -> tuple[int, Standing] | None:
    """From the spreads of a large world: the rank with the least communication in this tick.

    The standard deviation is a quarter and a bit of the way from the 10th to the 90th percentile
    (2.563 of them in normal noise).
    """
    comm, step = run.spreads.get("comm_s"), run.spreads.get("step_time_s")
    if comm is None or step is None or step.p50 <= 0 or stepping_since(run) is None:
        return None
    sigma = max((comm.p90 - comm.p10) / 2.563, FLOOR * step.p50)
    work, others = step.p50 - comm.low, step.p50 - comm.p50
    return comm.low_rank, Standing(work, others, step.p50, (work - others) / sigma)


def growth(rank: RankView, since_s: float) -> float | None:
    """Its current work as a multiple of its median in this attempt; None with too few records."""
    steps, comms = rank.curves["step_time_s"], rank.curves["comm_s"]
    first = bisect_left(steps.times, since_s)
    past = list(steps.values[first : -2 * RECORDS])
    if len(past) < 4 * RECORDS:
        return None
    waited = comms.values[bisect_left(comms.times, since_s) : -2 * RECORDS]
    has_comm = rank.sample is not None and rank.sample.comm_s is not None and len(waited) > 0
    stride = max(1, len(past) // 60)
    before = median(past[::stride]) - (median(waited[::stride]) if has_comm else 0.0)
    now = median(steps.values[-RECORDS:]) - (median(comms.values[-RECORDS:]) if has_comm else 0.0)
    return now / before if before > 0 else None


def find(run: RunView, limits: Thresholds) -> list[Finding]:
    """`straggler` and `slowed-rank`, one a rank."""
    since = stepping_since(run)
    newest = newest_s(run)
    if since is None or newest is None or newest - since < limits.warmup_s:
        return []
    past_from = since + limits.warmup_s / 2
    stood = standings(run)
    out = [
        rank
        for rank, it in stood.items()
        if it.score >= limits.straggler_sigmas and it.excess_percent >= limits.straggler_percent
    ]
    out.sort(key=lambda rank: -stood[rank].score)
    found = [_straggler(run, rank, stood[rank], past_from, limits) for rank in out]
    return found + _slowed(run, stood, set(out), past_from, limits)


def _straggler(
    run: RunView, rank: int, it: Standing, past_from: float, limits: Thresholds
) -> Finding:
    view = run.ranks.get(rank)
    grown = growth(view, past_from) if view is not None else None
    past = ""
    if grown is not None:
        changed = grown >= 1 + limits.slowed_percent / 100
        past = f"; {grown:.1f}x its earlier time" if changed else "; slow from the start"
    where = f" on {view.placement.node_ip}" if view is not None and view.placement else ""
    return Finding(
        "straggler",
        f"rank {rank}",
        Severity.WARNING,
        f"Rank {rank}{where} takes {duration(it.work_s)} per step, the others "
        f"{duration(it.others_s)}: "
        f"{it.excess_percent:.0f} % of each step is lost waiting for it",
        f"Score {it.score:.1f} (threshold {limits.straggler_sigmas:g}, and "
        f"{limits.straggler_percent:g} % of a step){past}",
        "Look at its stack and its node: throttling, a noisy neighbor, a slow disk, uneven input",
        run.id,
    )


def _slowed(
    run: RunView,
    stood: Mapping[int, Standing],
    reported: set[int],
    past_from: float,
    limits: Thresholds,
) -> list[Finding]:
    """Ranks that are no outliers but do more work than before. Of many, the slowest are checked."""
    asked = sorted(stood, key=lambda rank: -stood[rank].score)[:FEW_RANKS]
    grown = {
        rank: value
        for rank in asked
        if rank in run.ranks and (value := growth(run.ranks[rank], past_from)) is not None
    }
    if len(grown) < 2:
        return []
    found = []
    for rank, value in grown.items():
        common = median(other for number, other in grown.items() if number != rank)
        beyond = 100.0 * (value / max(common, 1e-9) - 1.0)
        it = stood[rank]
        weight = 100.0 * it.work_s * (1 - 1 / max(value, 1e-9)) / it.step_time_s
        if rank in reported or beyond < limits.slowed_percent or weight < limits.straggler_percent:
            continue
        found.append(
            Finding(
                "slowed-rank",
                f"rank {rank}",
                Severity.INFO,
                f"Rank {rank} takes {value:.2f}x its earlier time per step, "
                f"the others {common:.2f}x",
                f"Against its own median in this attempt; threshold {limits.slowed_percent:g} % "
                "beyond the others",
                "Look at its stack, its input and its node",
                run.id,
            )
        )
    return found
