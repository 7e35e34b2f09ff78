"""Hangs and repeated failures in the store, with the processes, pods and nodes of their causes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from cockpit.drills.plan.warnings import no_restart
from cockpit.guard.policy import HOUR_S, Target, Trigger, Trouble
from cockpit.insight.hang.types import Confidence, Kind, Verdict
from cockpit.insight.hang.verdict import verdict
from cockpit.insight.metrics.progress import is_believed
from cockpit.model.cluster import Pod, PodPhase
from cockpit.store.run import AttemptView, RunView
from cockpit.store.store import Store

STALE_S = 30.0
"""Nothing is concluded from telemetry that is older."""
_ENDED = (PodPhase.FAILED, PodPhase.SUCCEEDED, PodPhase.TERMINATING)
_WELL = ("finished", "resized")
_RANKS = re.compile(r"\branks? (\d+)\b[^:]*: (.*)")


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt ended."""

    sentence: str
    confidence: Confidence
    ranks: tuple[int, ...] = ()
    is_fixed_by_restart: bool | None = None
    """None: not known."""


Judge = Callable[[Store, RunView, AttemptView], Cause]


def from_reason(store: Store, run: RunView, attempt: AttemptView) -> Cause:
    """The rank that Ray Train's reason names; a rank that lost a peer is a victim."""
    found = _RANKS.search(attempt.reason)
    if found is None or found[2].startswith("lost a peer"):
        return Cause(attempt.reason, Confidence.LOW)
    return Cause(attempt.reason, Confidence.HIGH, (int(found[1]),))


def hangs(store: Store, now_s: float, wanted: str = "") -> list[Trouble]:
    """The runs that make no progress for longer than their pace explains."""
    if not is_believed(store, "telemetry", now_s, STALE_S):
        return []
    found = []
    for run in _of(store, wanted):
        known = None if run.state.is_over else verdict(run, now_s)
        if known is not None and known.is_late and known.kind is not Kind.RESOURCES:
            found.append(_hang(store, run, known))
    return found


def _hang(store: Store, run: RunView, found: Verdict) -> Trouble:
    attempt = run.attempt
    assert attempt is not None  # there are dumps of it
    # A process that is stopped keeps its resources until it is killed; Ray Train ends the others.
    ranks = found.ranks if found.kind is Kind.FROZEN else found.ranks[:1]
    return Trouble(
        Trigger.HANG,
        f"{run.id}/hang/{attempt.number}",
        run.id,
        run.name or run.id,
        attempt.number,
        found.sentence,
        found.confidence,
        targets(store, attempt, ranks),
        job_id=run.submission_id,
        no_restart=no_restart(store, run),
    )


def targets(store: Store, attempt: AttemptView, ranks: Iterable[int]) -> tuple[Target, ...]:
    """Where these ranks run now; those that are not of the attempt are left out."""
    pods = {pod.ip: pod for pod in store.pods.values() if pod.ip and pod.phase not in _ENDED}
    placed = {placement.rank: placement for placement in attempt.placements}
    found = []
    for rank in ranks:
        if (placement := placed.get(rank)) is not None:
            pod = pods.get(placement.node_ip)
            found.append(_target(store, rank, placement.pid, pod))
    return tuple(found)


def _target(store: Store, rank: int, pid: int, pod: Pod | None) -> Target:
    if pod is None:
        return Target(rank, pid)
    node = store.machines.get(pod.host)
    return Target(rank, pid, pod.name, pod.uid, node.name if node else "", node.uid if node else "")


def _of(store: Store, wanted: str) -> Sequence[RunView]:
    runs = store.runs.values()
    return [run for run in runs if wanted in ("", run.id, run.name, run.submission_id)]


@dataclass(frozen=True, slots=True)
class _End:
    run_id: str
    attempt: int
    ended_s: float
    cause: Cause
    targets: tuple[Target, ...]


@dataclass(slots=True)
class Failures:
    """Attempts that ended badly, with the pods and nodes on which their causes were.

    `see` has to be called while an attempt runs: its pods may be deleted when it has ended.
    """

    judge: Judge = from_reason
    began_s: float = 0.0
    """Attempts that ended before are not counted."""
    _placed: dict[tuple[str, int], tuple[Target, ...]] = field(default_factory=dict)
    _ends: dict[tuple[str, int], _End] = field(default_factory=dict)

    def see(self, store: Store, now_s: float) -> None:
        for run in store.runs.values():
            attempt = run.attempt
            if attempt is not None and attempt.ended_s is None:
                self._note_places(store, run, attempt)
            for one in run.attempts.values():
                key = (run.id, one.number)
                if key not in self._ends and self._is_bad(one, now_s):
                    cause = self.judge(store, run, one)
                    placed = [t for t in self._placed.get(key, ()) if t.rank in cause.ranks]
                    self._ends[key] = _End(
                        run.id, one.number, one.ended_s or now_s, cause, tuple(placed)
                    )
        for key in [k for k, end in self._ends.items() if now_s - end.ended_s > HOUR_S]:
            del self._ends[key]
            self._placed.pop(key, None)

    def _note_places(self, store: Store, run: RunView, attempt: AttemptView) -> None:
        """A pod that was deleted is known from before."""
        known = {one.rank: one for one in self._placed.get((run.id, attempt.number), ())}
        ranks = [placement.rank for placement in attempt.placements]
        self._placed[run.id, attempt.number] = tuple(
            one if one.pod else known.get(one.rank, one) for one in targets(store, attempt, ranks)
        )

    def _is_bad(self, attempt: AttemptView, now_s: float) -> bool:
        ended_s = attempt.ended_s
        return (
            ended_s is not None
            and bool(attempt.reason)
            and not attempt.reason.startswith(_WELL)
            and ended_s >= max(self.began_s, now_s - HOUR_S)
        )

    def repeated(self, store: Store, least: int, wanted: str = "") -> list[Trouble]:
        """The runs of which so many attempts failed within the last hour."""
        found = []
        for run in _of(store, wanted):
            ends = sorted(
                (end for end in self._ends.values() if end.run_id == run.id),
                key=lambda end: end.attempt,
            )
            if len(ends) >= least:
                found.append(self._trouble(store, run, ends[-1], len(ends)))
        return found

    def _trouble(self, store: Store, run: RunView, last: _End, count: int) -> Trouble:
        first = last.targets[0] if last.targets else None
        every = [target for end in self._ends.values() for target in end.targets[:1]]
        where = "" if first is None else first.node or first.uid or first.pod
        return Trouble(
            Trigger.REPEATED_FAILURE,
            f"{run.id}/failures/{where}",
            run.id,
            run.name or run.id,
            last.attempt,
            f"{count} attempts failed within an hour, the last one: {last.cause.sentence}",
            last.cause.confidence,
            last.targets,
            job_id=run.submission_id,
            no_restart=no_restart(store, run),
            on_pod=sum(one.uid == first.uid for one in every) if first else 0,
            on_node=sum(
                first is not None and bool(one.node) and one.node == first.node for one in every
            ),
            is_fixed_by_restart=last.cause.is_fixed_by_restart,
        )
