"""Find why a run makes no progress: which ranks block the others, and what those ranks do.

A rank waits for the members of a group that have not called the collective in which it is. The
cause is the ranks that others wait for and that do not wait themselves. Without such a rank, the
ranks wait for each other (deadlock), called different collectives, or all wait in the same one
(network).

Confidence is high when others wait for a rank that is idle, for longer than the run's pace
explains; it is medium if that rank is in a place where a rank may take long (storage, an
evaluation). A rank that uses the CPU, reads or writes may make progress: it is a cause only after
the slow bound, like ranks for which no other waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from cockpit import format
from cockpit.insight.detectors.stuck_start import LACKING, between_since
from cockpit.insight.hang.groups import group_states, stack_groups
from cockpit.insight.hang.place import SLOW, Place, place
from cockpit.insight.hang.sentence import (
    collective_text,
    function_of,
    group_name,
    has_or_have,
    is_or_are,
    rank_text,
    ranks_text,
)
from cockpit.insight.hang.types import Confidence, Kind, StackGroup, Verdict
from cockpit.insight.hang.waits import Mismatch, Wait, cycle, waits
from cockpit.insight.metrics.progress import is_going
from cockpit.insight.metrics.robust_statistics import median
from cockpit.model.run import Placement
from cockpit.store.hang import HangView, RankDump
from cockpit.store.run import AttemptView, RunView

SWAPPED_BYTES, SWAPPED_FAULTS_PER_S = 64 << 20, 50.0
"""From these on, the pages that it waits for are the reason why a rank makes no progress."""
LONGEST_TIMES = 2.0
"""A pause in a place where a rank may take long, against the longest pause before."""
LACKING_S, STARTING_S = 25.0, 120.0
"""Without ranks: when the cluster lacks resources, and when no reason is known."""


def verdict(run: RunView, now_s: float) -> Verdict | None:
    """Return why the run makes no progress; None while it does, or while nothing is known."""
    if (since_s := between_since(run)) is not None:
        return _without_ranks(run, now_s - since_s, now_s)
    view = run.hang
    attempt = run.attempt
    if not view.dumps or not is_going(run) or attempt is None or attempt.number != view.attempt:
        return None
    return _judged(run, view)


def last_verdict(run: RunView, attempt: AttemptView) -> Verdict | None:
    """Return why the attempt made no progress when it ended; None where it did, or is not known."""
    view = run.hang.of(attempt.number)
    return None if view is None else _judged(run, view)


def _without_ranks(run: RunView, waited_s: float, now_s: float) -> Verdict | None:
    lacks = run.message.startswith(LACKING)
    bound_s = LACKING_S if lacks else STARTING_S
    if waited_s < bound_s:
        return None
    reason = f": {run.message}" if run.message else ""
    sentence = (
        f"Ray Train has waited for {format.in_seconds(waited_s, 0)} to start the ranks; the run is "
        f"{run.state.value}{reason}."
    )
    confidence = Confidence.HIGH if lacks else Confidence.MEDIUM
    return Verdict(Kind.RESOURCES, (), sentence, confidence, waited_s, bound_s, now_s)


class _Known(Struct, frozen=True):
    """What a verdict depends on besides the dumps."""

    placements: tuple[Placement, ...]
    xids: dict[int, int]
    """By rank: the newest Xid error of its GPUs in this attempt."""
    may_restart: bool
    job: str


class _Judged(Struct, frozen=True):
    known: _Known
    verdict: Verdict


def _judged(run: RunView, view: HangView) -> Verdict:
    """Return the verdict on the dumps, which is kept with them: each view asks at each redraw."""
    attempt = run.attempts.get(view.attempt)
    samples = [of.sample for of in run.ranks.values() if of.sample is not None]
    known = _Known(
        attempt.placements if attempt is not None else (),
        {one.rank: one.gpu_xid for one in samples if one.gpu_xid and one.attempt == view.attempt},
        run.max_failures != 0,
        run.submission_id,
    )
    kept = view.judged
    if not isinstance(kept, _Judged) or kept.known != known:
        kept = view.judged = _Judged(known, _Case(known, view).verdict())
    return kept.verdict


class _Case:
    """The dumps of one hang."""

    def __init__(self, known: _Known, view: HangView) -> None:
        self._known, self._view = known, view
        self._dumps = view.dumps
        self._waits = waits(view)
        self._places = {rank: _place(dump) for rank, dump in self._dumps.items()}
        self._idle_s = min(dump.dump.idle_s for dump in self._dumps.values())
        self._bound_s = median([dump.dump.bound_s for dump in self._dumps.values()])

    def verdict(self) -> Verdict:
        found = self._waits
        blocked_by = found.blocked_by()
        held_up = {rank for others in blocked_by.values() for rank in others}
        causes = held_up - blocked_by.keys()
        if found.mismatches:
            return self._mismatch(found.mismatches[0])
        if causes:
            return self._lagging(causes)
        if ring := cycle(blocked_by):
            return self._deadlock(ring)
        unknown = {rank for wait in found.waits for rank in wait.unknown}
        if found.waits and unknown:
            return self._progressing(found.waits[0], unknown)
        if found.waits:
            return self._network(found.waits)
        everyone = self._dumps.keys() | set(self._view.silent)
        reporting = {rank for rank, at in self._places.items() if at is Place.REPORT}
        if reporting and (others := everyone - reporting):
            return self._not_reporting(reporting, others)
        by_stack = {rank for rank in self._dumps if self._is_in_an_unknown_collective(rank)}
        if by_stack and (others := everyone - by_stack):
            return self._outside(by_stack, others)
        if self._view.silent:
            return self._made(
                Kind.FROZEN, self._view.silent, [f"{self._silent(self._view.silent)}."], True
            )
        return self._together()

    def _lagging(self, causes: set[int]) -> Verdict:
        wait = self._wait_for(causes)
        kind = self._kind(causes)
        if wait is None:
            waiting = sorted(r for r, peer in self._waits.peers.items() if peer in causes)
            what = (
                f"{ranks_text(waiting)} {has_or_have(waiting)} waited in send or recv for "
                f"{format.ranks(causes)} for {format.in_seconds(self._idle_s, 0)}"
            )
        else:
            waiting = sorted(
                {
                    each.rank
                    for each in self._waits.waits
                    if (each.group, each.collective.seq) == (wait.group, wait.collective.seq)
                }
            )
            what = (
                f"{ranks_text(wait.missing)} never called {collective_text(wait)}; "
                f"{format.ranks(waiting)} {has_or_have(waiting)} waited in it for "
                f"{format.in_seconds(wait.collective.age_s, 0)}"
            )
        return self._located(kind, causes, f"{what}.")

    def _wait_for(self, causes: set[int]) -> Wait | None:
        """The oldest wait for one of the causes."""
        of = [wait for wait in self._waits.waits if wait.missing & causes]
        return max(of, key=lambda wait: wait.collective.age_s, default=None)

    def _kind(self, causes: Collection[int]) -> Kind:
        if self._xids(causes):
            return Kind.GPU
        places = Counter(self._places[rank] for rank in causes if rank in self._places)
        if causes and all(rank in self._view.silent for rank in causes):
            return Kind.SWAPPED if Place.SWAPPED in places else Kind.FROZEN
        if not places:
            return Kind.SKIPPED
        return _KIND_OF.get(places.most_common(1)[0][0], Kind.SKIPPED)

    def _xids(self, ranks: Iterable[int]) -> dict[int, int]:
        """The Xid errors of their GPUs in this attempt, by rank."""
        return {rank: self._known.xids[rank] for rank in ranks if rank in self._known.xids}

    def _mismatch(self, found: Mismatch) -> Verdict:
        told = [f"{format.ranks(ranks)} called {what}" for what, ranks in found.called.items()]
        order = list(found.called.values())
        is_tie = len(order[0]) == len(order[1])
        causes = [r for ranks in (order if is_tie else order[1:]) for r in ranks]
        name = group_name(found.group)
        sentence = f"Collective #{found.seq} of group {name} differs: {'; '.join(told)}."
        return self._made(Kind.MISMATCH, causes, [sentence, *self._where(causes)], True)

    def _deadlock(self, ring: list[int]) -> Verdict:
        parts = []
        for rank, other in zip(ring, [*ring[1:], ring[0]], strict=True):
            wait = next(
                (w for w in self._waits.waits if w.rank == rank and other in w.missing), None
            )
            where = collective_text(wait) if wait is not None else "send or recv"
            parts.append(f"rank {rank} waits in {where} for rank {other}")
        sentence = f"{parts[0][0].upper()}{'; '.join(parts)[1:]}."
        return self._made(Kind.DEADLOCK, ring, [sentence, *self._where(ring)], True)

    def _network(self, found: list[Wait]) -> Verdict:
        wait = max(found, key=lambda each: each.collective.age_s)
        ranks = sorted({each.rank for each in found})
        faulty = self._xids(ranks)
        cause = "the cause is the network or the transport"
        if faulty:
            cause = f"the GPU of {format.ranks(faulty)} reported an Xid error"
        called = f"all members of the group have called it: {cause}"
        if ignored := sorted(set(self._waits.implausible) & set(wait.group.members)):
            called = f"it is not known whether {format.ranks(ignored)} called it"
        sentence = (
            f"{ranks_text(ranks)} {has_or_have(ranks)} waited in {collective_text(wait)} for "
            f"{format.in_seconds(wait.collective.age_s, 0)}, and {called}."
        )
        kind, causes = (Kind.GPU, list(faulty)) if faulty else (Kind.NETWORK, ranks)
        made = self._made(kind, causes, [sentence, *self._where(causes)], True)
        # A rank whose sequences are ignored may be the one for which the others wait.
        return replace(made, confidence=Confidence.LOW) if self._waits.implausible else made

    def _progressing(self, wait: Wait, unknown: set[int]) -> Verdict:
        sentence = (
            f"Rank {wait.rank} has waited for {format.in_seconds(wait.collective.age_s, 0)} in "
            f"{collective_text(wait)}, while {format.ranks(unknown)} "
            f"{format.verb(len(unknown), 'make')} progress."
        )
        return self._made(Kind.SKIPPED, unknown, [sentence], False)

    def _not_reporting(self, reporting: set[int], others: set[int]) -> Verdict:
        sentence = (
            f"{ranks_text(others)} {has_or_have(others)} not called ray.train.report, in which "
            f"{format.ranks(reporting)} {has_or_have(reporting)} waited for "
            f"{format.in_seconds(self._idle_s, 0)}."
        )
        return self._located(self._kind(others), others, sentence)

    def _is_in_an_unknown_collective(self, rank: int) -> bool:
        """By its stack alone: its flight recorder was not read."""
        missing = self._dumps[rank].dump.missing
        return bool(missing) and self._places[rank] is Place.COLLECTIVE

    def _outside(self, waiting: set[int], others: set[int]) -> Verdict:
        """Without sequence numbers the ranks may be in different collectives: never certain.

        Until the pace is known, ranks may still form their process group.
        """
        where = "not known to be in one" if others & set(self._view.silent) else "in none"
        sentence = (
            f"{ranks_text(waiting)} {has_or_have(waiting)} waited in a collective for "
            f"{format.in_seconds(self._idle_s, 0)}, and {format.ranks(others)} "
            f"{is_or_are(others)} {where}."
        )
        has_pace = any(dump.dump.usual_s is not None for dump in self._dumps.values())
        found = self._located(self._kind(others), others, sentence, structural=has_pace)
        is_certain = found.confidence is Confidence.HIGH
        return replace(found, confidence=Confidence.MEDIUM) if is_certain else found

    def _together(self) -> Verdict:
        """No rank waits for another: the ranks are stopped in the same kind of place."""
        kinds = Counter(self._places.values())
        at = kinds.most_common(1)[0][0]
        ranks = sorted(rank for rank, of in self._places.items() if of is at)
        sentence = f"No rank waits for another; {format.ranks(ranks)} made no progress for "
        sentence += f"{format.in_seconds(self._idle_s, 0)}."
        kind = _KIND_OF.get(at, Kind.USER)
        return self._made(kind, ranks, [sentence, *self._where(ranks)], False)

    def _located(
        self, kind: Kind, causes: Collection[int], sentence: str, *, structural: bool = True
    ) -> Verdict:
        """Of ranks that the others wait for: it also has their place."""
        where = self._where(causes)
        made = self._made(kind, causes, [sentence, *where], structural)
        return replace(made, where=" ".join(where))

    def _made(
        self, kind: Kind, causes: Iterable[int], sentences: list[str], structural: bool
    ) -> Verdict:
        ranks = tuple(sorted(causes))
        return Verdict(
            kind,
            ranks,
            " ".join(sentences),
            self._confidence(ranks, structural),
            self._idle_s,
            self._bound_s,
            max(dump.at_s for dump in self._dumps.values()),
            tuple(self._evidence(ranks)),
            group_states(self._waits),
            stack_groups(self._dumps, self._places, ranks),
            self._known.may_restart,
            self._known.job,
        )

    def _confidence(self, causes: Collection[int], structural: bool) -> Confidence:
        """A rank in a collective may use the CPU while it waits, as with NCCL.

        Without a rank that waits for another, there is no verdict before the pace is known, or
        after a rank has finished: the others may do the remaining work.
        """
        if self._is_unseen_progress():
            return Confidence.LOW
        pace_unknown = all(dump.dump.usual_s is None for dump in self._dumps.values())
        finished = Place.FINISHED in self._places.values()
        if self._idle_s < self._bound_s or (not structural and (pace_unknown or finished)):
            return Confidence.LOW
        waiting = {wait.rank for wait in self._waits.waits} | self._waits.peers.keys()
        free = [rank for rank in causes if rank in self._dumps and rank not in waiting]
        of = [self._dumps[rank].dump for rank in free or self._dumps]
        if structural and not any(_is_busy(self._dumps[rank]) for rank in free):
            if not any(self._places[rank] in SLOW for rank in free):
                return Confidence.HIGH
            if self._idle_s >= LONGEST_TIMES * median([dump.longest_s for dump in of]):
                return Confidence.MEDIUM
        slow_s = median([dump.slow_bound_s for dump in of])
        return Confidence.MEDIUM if self._idle_s >= slow_s else Confidence.LOW

    def _is_unseen_progress(self) -> bool:
        """Whether ranks called collectives after the last progress that their watchdogs noticed.

        A watchdog counts the calls of a limited number of process groups.
        """
        ages_s = [wait.collective.age_s for wait in self._waits.waits]
        return bool(ages_s) and max(ages_s) < min(self._idle_s, self._bound_s) / 2

    def _where(self, causes: Collection[int]) -> list[str]:
        """The place of the causes, and that of most of the others."""
        groups = stack_groups(self._dumps, self._places, causes)
        of_cause = next((group for group in groups if group.is_cause), None)
        other = next((group for group in groups if not group.is_cause), None)
        parts = []
        if silent := sorted(set(causes) & set(self._view.silent)):
            parts.append(self._silent(silent))
        if of_cause is not None:
            parts.append(
                f"{ranks_text(of_cause.ranks)} {is_or_are(of_cause.ranks)} {self._at(of_cause)}"
            )
        if other is not None:
            others = format.plural(len(other.ranks), "other rank")
            parts.append(f"{others} {is_or_are(other.ranks)} {self._at(other)}")
        return [f"{'; '.join(parts)}."] if parts else []

    def _silent(self, ranks: Collection[int]) -> str:
        sends = format.verb(len(ranks), "send")
        return (
            f"{ranks_text(ranks)} {sends} no data: stopped, swapped out, or in native code that "
            "holds the GIL"
        )

    def _at(self, group: StackGroup) -> str:
        """`in `loop` (train.py:11), `time.sleep``."""
        stack = group.stack
        if group.place is Place.FINISHED:
            return "out of its training function"
        if stack.user < 0:
            return f"in `{stack.frames[0]}`" if stack.frames else "in unknown code"
        function, _, where = stack.frames[stack.user].partition(" (")
        if group.place is Place.REPORT:
            return f"in `ray.train.report` ({where}"
        waits = [wait for wait in self._waits.waits if wait.rank in group.ranks]
        if group.place is Place.COLLECTIVE and not group.is_cause:
            inner = waits[0].collective.op if waits else function_of(stack.frames[0])
            return f"in `{inner}` ({where}"
        if waits and "(torch/autograd/" in stack.frames[0]:  # DDP calls it from C++
            return f"in `{waits[0].collective.op}` of the backward pass ({where}"
        called = [f for f in map(function_of, stack.frames[: stack.user]) if f != "wrapper"]
        inner = called[-1] if called else stack.call
        return f"in `{function}` ({where}" + (f", `{inner}`" if inner else "")

    def _evidence(self, causes: Collection[int]) -> Iterable[str]:
        places = {of.rank: of for of in self._known.placements}
        for rank in sorted(causes)[:3]:
            placed, dump = places.get(rank), self._dumps.get(rank)
            if placed is not None or dump is not None:
                yield rank_text(rank, placed, dump)
        for rank, xid in sorted(self._xids(causes).items())[:3]:
            yield f"rank {rank}: Xid {xid} on its GPU"
        if self._waits.implausible:
            yield f"ignored for implausible sequences: {format.ranks(self._waits.implausible)}"
        missing = Counter(d.dump.missing for d in self._dumps.values() if d.dump.missing)
        for why, count in missing.most_common(2):
            yield f"{format.plural(count, 'rank')} without collectives: {why}"
        usual = [d.dump.usual_s for d in self._dumps.values() if d.dump.usual_s is not None]
        pace = (
            f"progress every {format.in_seconds(median(usual), 1)}"
            if usual
            else "its pace is not known yet"
        )
        idle, bound = format.in_seconds(self._idle_s, 0), format.in_seconds(self._bound_s, 0)
        yield f"no progress for {idle}; {pace}, so the bound is {bound}"
        if self._is_unseen_progress():
            yield "the collectives are newer than that: the ranks make progress in other groups"


_KIND_OF = {
    Place.DATA: Kind.DATA,
    Place.STORAGE: Kind.STORAGE,
    Place.EVALUATION: Kind.EVALUATION,
    Place.CHILD: Kind.CHILD,
    Place.RAY: Kind.RAY,
    Place.REPORT: Kind.REPORT,
    Place.SWAPPED: Kind.SWAPPED,
    Place.LOCK: Kind.LOCK,
    Place.USER: Kind.USER,
    Place.FINISHED: Kind.SKIPPED,
    Place.COLLECTIVE: Kind.SKIPPED,
}


def _place(dump: RankDump) -> Place:
    if dump.training is None:
        return Place.FINISHED
    swapped, faults = dump.dump.swapped_bytes or 0, dump.dump.major_faults_per_s or 0.0
    if swapped >= SWAPPED_BYTES and faults >= SWAPPED_FAULTS_PER_S:
        return Place.SWAPPED
    found = place(dump.stack(dump.training))
    # In uninterruptible sleep a thread waits for a disk or a file system, for any caller.
    is_waiting = dump.training.state == "D" and found in (Place.USER, Place.LOCK)
    return Place.STORAGE if is_waiting else found


def _is_busy(dump: RankDump) -> bool:
    """On a machine with too much to do, a thread that is runnable gets little of the CPU."""
    # Not imported for a run without dumps: its classes take 13 ms to create.
    from training.telemetry.wire import BUSY_CPU_PERCENT, BUSY_IO_BYTES_PER_S

    cpu, io = dump.dump.cpu_percent, dump.dump.io_bytes_per_s
    if dump.training is not None and dump.training.state == "R":
        return True
    return (cpu or 0.0) >= BUSY_CPU_PERCENT or (io or 0.0) >= BUSY_IO_BYTES_PER_S
