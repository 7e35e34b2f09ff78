"""Hangs and repeated failures in the store, with the processes, pods and nodes of their causes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.drills.plan.warnings import no_restart
from cockpit.guard.policy import HOUR_S, Target, Trigger, Trouble
from cockpit.insight.causes.types import Advice, Category, Cause
from cockpit.insight.causes.verdict import causes_of_run, ended_badly
from cockpit.insight.hang.types import Kind, Verdict
from cockpit.insight.hang.verdict import last_verdict, verdict
from cockpit.insight.metrics.progress import is_believed
from cockpit.model.cluster import Pod, PodPhase
from cockpit.store.run import AttemptView, RunView
from cockpit.store.selectors import retried_job
from cockpit.store.store import Store

STALE_S = 30.0
"""Nothing is concluded from telemetry that is older."""
JUDGED = 50
"""Attempts before the newest that are judged with those of the last hour."""
SETTLE_S = 10.0
"""After the end of an attempt: its logs are read by then."""
_IN_CODE = (Kind.SKIPPED, Kind.MISMATCH, Kind.DEADLOCK)
"""Hangs in which the ranks execute the wrong code, and not on a pod."""
_OF_EACH_RANK = (Kind.FROZEN, Kind.SWAPPED, Kind.GPU)
"""Hangs that are known of each rank on its own."""
_ENDED = (PodPhase.FAILED, PodPhase.SUCCEEDED, PodPhase.TERMINATING)


Judge = Callable[[Store, RunView], Sequence[Cause]]
"""The causes of the attempts of a run that ended badly."""


def hangs(store: Store, now_s: float, wanted: str = "") -> list[Trouble]:
    """The runs that make no progress for longer than their pace explains."""
    if not is_believed(store, "telemetry", now_s, STALE_S):
        return []
    found = []
    for run in _of(store, wanted):
        hang = None if run.state.is_over else verdict(run, now_s)
        if hang is not None and hang.is_late and hang.kind is not Kind.RESOURCES:
            found.append(_hang(store, run, hang))
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
        no_culprit=_no_culprit(run, found),
        hangs_again=_hangs_again(run, attempt, found),
    )


def _no_culprit(run: RunView, found: Verdict) -> str:
    """All ranks of a deadlock or of a fault of the network wait: none of their pods is known bad.

    The same applies where ranks disagree without a majority, or where all ranks do the same.
    """
    is_everyone = {*found.ranks} == {*run.hang.dumps, *run.hang.silent}
    of_several = len(found.ranks) > 1 and (
        found.kind is Kind.MISMATCH or (is_everyone and found.kind not in _OF_EACH_RANK)
    )
    if found.kind in (Kind.NETWORK, Kind.DEADLOCK) or of_several:
        return f"no single rank is the cause of this hang ({found.kind.value})"
    return ""


def _hangs_again(run: RunView, attempt: AttemptView, found: Verdict) -> str:
    before = run.attempts.get(attempt.number - 1)
    last = last_verdict(run, before) if before is not None else None
    is_same = last is not None and last.is_late and last.kind is found.kind
    if before is None or not is_same or found.kind not in _IN_CODE:
        return ""
    return (
        f"attempt {before.number} hung in the same way ({found.kind.value}), so a restart would "
        "hang again"
    )


def targets(store: Store, attempt: AttemptView, ranks: Iterable[int]) -> tuple[Target, ...]:
    """Return the current pods of these ranks; ranks that are not in the attempt are skipped."""
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
    node = store.kubernetes_nodes.get(pod.host)
    return Target(rank, pid, pod.name, pod.uid, node.name if node else "", node.uid if node else "")


def _of(store: Store, wanted: str) -> Sequence[RunView]:
    runs = store.runs.values()
    return [run for run in runs if wanted in ("", run.id, run.name, run.submission_id)]


class Failures(Struct):
    """Attempts that ended badly, with the pods and nodes on which their causes were.

    `see` has to be called while an attempt runs: its pods may be deleted when it has ended.
    """

    judge: Judge = causes_of_run
    began_s: float = 0.0
    """Attempts that ended before are not counted."""
    _placed: dict[tuple[str, int], tuple[Target, ...]] = field(default_factory=dict)

    def see(self, store: Store, now_s: float) -> None:
        for run in store.runs.values():
            attempt = run.attempt
            if attempt is not None and attempt.ended_s is None:
                self._note_places(store, run, attempt)
        for run_id, number in list(self._placed):
            seen_run = store.runs.get(run_id)
            view = seen_run.attempts.get(number) if seen_run is not None else None
            if view is None or (view.ended_s is not None and now_s - view.ended_s > HOUR_S):
                del self._placed[run_id, number]

    def _note_places(self, store: Store, run: RunView, attempt: AttemptView) -> None:
        """A pod that was deleted is known from before."""
        placed = {one.rank: one for one in self._placed.get((run.id, attempt.number), ())}
        ranks = [placement.rank for placement in attempt.placements]
        self._placed[run.id, attempt.number] = tuple(
            one if one.pod else placed.get(one.rank, one) for one in targets(store, attempt, ranks)
        )

    def repeated(self, store: Store, now_s: float, least: int, wanted: str = "") -> list[Trouble]:
        """Return the runs with at least this number of failed attempts in the last hour.

        A run is included only after the logs of its last attempt were read.
        """
        found = []
        for run in _of(store, wanted):
            since_s = max(self.began_s, now_s - HOUR_S)
            ended_s = {
                number: one.ended_s
                for number, one in run.attempts.items()
                if ended_badly(one) and one.ended_s is not None and one.ended_s >= since_s
            }
            if len(ended_s) >= least and now_s - max(ended_s.values()) >= SETTLE_S:
                # A run that has failed for days has thousands, and this is done once a second.
                first = min(*ended_s, max(run.attempts) - JUDGED)
                newest = {n: view for n, view in run.attempts.items() if n >= first}
                recent = replace(run, attempts=newest)
                causes = [one for one in self.judge(store, recent) if one.attempt in ended_s]
                if causes:
                    found.append(self._trouble(store, run, causes))
        return found

    def _trouble(self, store: Store, run: RunView, causes: Sequence[Cause]) -> Trouble:
        last, of = causes[-1], [self._targets(run, cause) for cause in causes]
        first = of[-1][0] if of[-1] else None
        # By UID: another node may have the name of a deleted one, and its failures are new.
        where = "" if first is None else first.node_uid or first.node or first.uid or first.pod
        is_fixed = None if last.category is Category.UNKNOWN else last.advice is Advice.RESTART
        return Trouble(
            Trigger.REPEATED_FAILURE,
            f"{run.id}/failures/{where}",
            run.id,
            run.name or run.id,
            last.attempt or 0,
            f"{len(causes)} attempts failed within an hour. {last.sentence}",
            last.confidence,
            of[-1],
            job_id=run.submission_id,
            no_restart=no_restart(store, run),
            on_pod=sum({it.uid for it in one} == {first.uid} for one in of) if first else 0,
            on_node=sum({_node_of(it) for it in one} == {_node_of(first)} for one in of)
            if first and first.node
            else 0,
            is_fixed_by_restart=is_fixed,
            is_over=run.state.is_over and retried_job(store, run) is None,
        )

    def _targets(self, run: RunView, cause: Cause) -> tuple[Target, ...]:
        """Return the ranks of the cause, else those of its pod."""
        placed = self._placed.get((run.id, cause.attempt or 0), ())
        found = tuple(target for target in placed if target.rank in cause.ranks)
        return found or tuple(target for target in placed if cause.pod and target.pod == cause.pod)


def _node_of(target: Target) -> tuple[str, str]:
    return target.node, target.node_uid
