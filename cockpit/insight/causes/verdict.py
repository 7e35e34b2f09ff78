"""Find why attempts and jobs ended with a failure: the root cause, separate from its victims.

Each reported line is matched against the rules. The clue with the highest weight is the cause; of
equal ones the first in time. A victim's line is never the cause: with victims only, the cause is
unknown. Confidence is low if clues of similar weight disagree, or if a line shows only that a
process ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cockpit import format
from cockpit.insight.causes.clue import Clue, earliest
from cockpit.insight.causes.clues import LOG_TAIL_S, of_attempt
from cockpit.insight.causes.log_clues import of_excerpts, of_job, of_reason
from cockpit.insight.causes.rules import (
    ADVICE,
    CERTAIN,
    EFFECTS,
    ENVIRONMENT,
    LIKELY,
    REPEATED,
    THIN,
)
from cockpit.insight.causes.types import Advice, Category, Cause, Confidence
from cockpit.model.run import Job, JobStatus, RunState
from cockpit.model.text import one_line
from cockpit.store.run import AttemptView, RunView
from cockpit.store.store import Store

RIVAL = 6
"""A clue of another category that is lighter by at most this contradicts the cause."""
EVIDENCE, QUOTE = 8, 160
"""The number of lines with the cause, and of characters of each."""
_WELL = ("finished", "resized")


def ended_badly(attempt: AttemptView) -> bool:
    return (
        attempt.ended_s is not None
        and bool(attempt.reason)
        and not attempt.reason.startswith(_WELL)
    )


def causes_of_run(store: Store, run: RunView, newest: int | None = None) -> tuple[Cause, ...]:
    """Return a verdict on each failed attempt, oldest first; without attempts, on the run.

    `newest`: only that many of the last attempts are included.
    """
    found: list[Cause] = []
    for number in sorted(run.attempts)[-(newest or 0) :]:
        attempt = run.attempts[number]
        if ended_badly(attempt):
            clues = of_attempt(store, run, attempt)
            end = _End(attempt.reason, run.submission_id, attempt.ended_s, run.id, number)
            cause = _cause(clues, end)
            found.append(_advised(cause, found))
    if not run.attempts and run.state in (RunState.ERRORED, RunState.ABORTED):
        job = store.jobs.get(run.submission_id)
        clues = list(of_reason(run.message, "Ray Train", run.ended_s))
        clues += of_job(job) if job is not None else ()
        found.append(_cause(clues, _End(run.message, run.submission_id, run.ended_s, run.id)))
    return tuple(found)


def cause_of_job(store: Store, job: Job) -> Cause | None:
    """Return a verdict on a job; None for one that is active or has succeeded.

    A job that ended together with an attempt of its run has the cause of that attempt.
    """
    if job.status not in (JobStatus.FAILED, JobStatus.STOPPED):
        return None
    runs = [run for run in store.runs.values() if job.id and run.submission_id == job.id]
    newest = max(runs, key=lambda run: run.started_s, default=None)
    if newest is not None and (causes := causes_of_run(store, newest, REPEATED)):
        last, newest_number = causes[-1], max(newest.attempts, default=None)
        ended_s = last.ended_s if job.ended_s is not None else None
        within = ended_s is None or (job.ended_s or 0.0) - ended_s <= LOG_TAIL_S
        if within and last.attempt == newest_number:
            return last
    clues = [*of_job(job), *of_excerpts(store, job.id, 0, job.ended_s)]
    return _cause(clues, _End(job.message, job.id, job.ended_s))


def newest_cause(store: Store) -> Cause | None:
    """Of all runs and jobs, the most recent end."""
    found = [
        cause for run in store.runs.values() for cause in causes_of_run(store, run, REPEATED)[-1:]
    ]
    with_run = {cause.job_id for cause in found}
    found += [
        cause
        for job in store.jobs.values()
        if job.id not in with_run and (cause := cause_of_job(store, job)) is not None
    ]
    return max(found, key=lambda cause: cause.ended_s or 0.0, default=None)


class _End(Struct, frozen=True):
    """The subject that ended, and the reported reason."""

    reason: str
    job_id: str
    ended_s: float | None
    run_id: str = ""
    attempt: int | None = None


def _cause(clues: Sequence[Clue], end: _End) -> Cause:
    culprits = [clue for clue in clues if not clue.is_victim]
    best = earliest(culprits)
    if best is None:
        return _unknown(clues, end)
    who = _who(best, culprits)
    advice, advice_reason = ADVICE[best.category]
    return Cause(
        category=best.category,
        sentence=f"{_subject(who, best)} {best.what}.",
        confidence=_confidence(best, _rival(best, culprits)),
        advice=advice,
        advice_reason=advice_reason,
        run_id=end.run_id,
        attempt=end.attempt,
        job_id=end.job_id,
        ranks=who.ranks,
        pod=who.pod,
        node=who.node,
        since_s=best.at_s if best.at_s is not None else end.ended_s,
        ended_s=end.ended_s,
        quote=best.quote,
        quoted_from=best.quoted_from,
        evidence=tuple(_evidence(best, clues)),
    )


def _unknown(clues: Sequence[Clue], end: _End) -> Cause:
    victims = [clue for clue in clues if clue.is_victim]
    if victims:
        ranks = sorted({rank for clue in victims for rank in clue.ranks})
        who = format.ranks(ranks).capitalize() if ranks else "A rank"
        sentence = f"{who} lost a peer; no cause is reported."
        quote, quoted_from = victims[0].quote, victims[0].quoted_from
    else:
        sentence = "No cause is reported."
        lines = [line for line in end.reason.splitlines() if line.strip()]
        quote, quoted_from = one_line(lines[-1] if lines else "", 300), "status"
    advice, advice_reason = ADVICE[Category.UNKNOWN]
    return Cause(
        category=Category.UNKNOWN,
        sentence=sentence,
        confidence=Confidence.LOW,
        advice=advice,
        advice_reason=advice_reason,
        run_id=end.run_id,
        attempt=end.attempt,
        job_id=end.job_id,
        since_s=end.ended_s,
        ended_s=end.ended_s,
        quote=quote,
        quoted_from=quoted_from if quote else "",
    )


def _rival(best: Clue, culprits: Iterable[Clue]) -> Clue | None:
    return earliest(
        clue
        for clue in culprits
        if clue.category not in {best.category, *EFFECTS}
        and clue.weight >= best.weight - RIVAL
        and clue.weight > THIN
        and best.quoted_from != "drill"
    )


def _confidence(best: Clue, rival: Clue | None) -> Confidence:
    if best.weight <= THIN or rival is not None:
        return Confidence.LOW
    if best.weight >= CERTAIN:
        return Confidence.HIGH
    return Confidence.MEDIUM if best.weight >= LIKELY else Confidence.LOW


def _who(best: Clue, culprits: Iterable[Clue]) -> Clue:
    """The clue itself, or another of its category that names a rank or a pod."""
    if best.ranks or best.pod:
        return best
    named = [c for c in culprits if c.category is best.category and (c.ranks or c.pod)]
    return earliest(named) or best


def _subject(who: Clue, best: Clue) -> str:
    if who.ranks:
        ranks = format.ranks(who.ranks)
        subject = f"{ranks[:1].upper()}{ranks[1:]}"
        return f"{subject} on {who.pod}" if who.pod else subject
    if who.pod:
        return f"Pod {who.pod}"
    return best.subject or "The run"


def _evidence(best: Clue, clues: Iterable[Clue]) -> Iterable[str]:
    """Other reports than the cause, culprits first and then in order of time."""
    others = [clue for clue in clues if clue is not best and clue.quote != best.quote]
    others.sort(key=lambda clue: (clue.is_victim, -clue.weight, clue.at_s or 0.0))
    lines = dict.fromkeys(
        f"{'victim' if clue.is_victim else clue.category.value}, {clue.quoted_from}: "
        f"{one_line(clue.quote, QUOTE)}"
        for clue in others
    )
    return list(lines)[:EVIDENCE]


def _advised(cause: Cause, before: Sequence[Cause]) -> Cause:
    """With STOP where the same cause has ended several attempts in a row."""
    if cause.category is Category.CUDA:
        cause = _compared(cause, before)
    if cause.advice is Advice.STOP or cause.category in ENVIRONMENT:
        return cause
    alike = 1
    for earlier in reversed(before):
        if earlier.category is not cause.category:
            break
        alike += 1
    if alike < REPEATED:
        return cause
    return replace(cause, advice=Advice.STOP, advice_reason=f"it ended {alike} attempts in a row")


def _compared(cause: Cause, before: Sequence[Cause]) -> Cause:
    """Of an error on a GPU: whether earlier ones on other nodes show that the code is the cause."""
    earlier = [one for one in before if one.category is Category.CUDA and one.node and cause.node]
    elsewhere = [one for one in earlier if one.node != cause.node]
    if elsewhere:
        why = (
            f"attempt {elsewhere[-1].attempt} failed the same way on another node, so the code "
            "is the cause"
        )
        return replace(cause, advice=Advice.STOP, advice_reason=why)
    if earlier:
        why = f"after you cordon its node, where attempt {earlier[-1].attempt} failed the same way"
        return replace(cause, advice_reason=why)
    return cause
