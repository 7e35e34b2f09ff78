"""Collect clues from texts: the reasons of Ray Train, the status of jobs, and logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cockpit.insight.causes.clue import Clue, clue_of
from cockpit.insight.causes.rules import EXCEPTION, match, plain
from cockpit.model.run import Job, JobStatus
from cockpit.model.text import one_line
from cockpit.store.store import Store

REPORTED, TRACEBACK, EARLIER = 20, 15, -25
"""Added to the weight of an exception that Ray Train names or that is in the last traceback; and of
any line before that traceback, or after it if the traceback shows a cause."""
LINES, LINE = 1_000, 2_000
"""The number of last lines of a log that are matched, and of first characters of each."""
CLEANUP = 50
"""The most lines after an exception that ended its process; with more, the process continued."""
EXIT_CODE = "Job entrypoint command failed with exit code"
_RANKS = re.compile(r"^ranks? (\d+(?:, \d+)*): (.*)$", re.DOTALL)
RANKS_WITHIN = re.compile(r"\branks? (\d+(?:, \d+)*)\b")
_PREFIX = re.compile(r"^(?:the worker group did not start|its job is [A-Z]+): ")
_FRAME = re.compile(r'^File ".*", line \d+')
_EXCEPTION = re.compile(
    r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Failure|Interrupt|Exit)\b(?:\(|:|$)"
)
_IGNORED = re.compile(r"^(?:Exception ignored |Error in atexit\.)")
"""What Python writes before the traceback of an exception at the end of the process."""
_SNIPPET = re.compile(r"^\[Rank (\d+) Error Snippet\]")


def of_reason(reason: str, quoted_from: str, at_s: float | None) -> Iterator[Clue]:
    """Of one line of Ray Train: `ranks 1, 3: its node died`."""
    ranks: tuple[int, ...] = ()
    text = _PREFIX.sub("", reason)
    if (named := _RANKS.match(reason)) is not None:
        ranks, text = numbers(named[1]), named[2]
    elif (within := RANKS_WITHIN.search(reason)) is not None:
        ranks = numbers(within[1])
    found = clue_of(text, quoted_from, at_s, ranks=ranks, bonus=REPORTED)
    if found is not None:
        yield replace(found, quote=one_line(reason, 300))


def of_job(job: Job) -> Iterator[Clue]:
    """Of the status message of a job that is over, whose end is the end of its log."""
    if job.status is JobStatus.STOPPED:
        text = "job stopped"
        if (found := clue_of(text, "job status", job.ended_s, subject="The job")) is not None:
            yield replace(found, quote=one_line(job.message, 300) or "STOPPED")
    elif job.status is JobStatus.FAILED:
        for found in of_lines(job.message.splitlines(), "job log", job.ended_s, subject="The job"):
            if found.quote.startswith(EXIT_CODE):  # a line of the log shows more
                quote = found.quote.partition(", last available")[0]
                found = replace(found, weight=found.weight - 1, quote=quote)
            yield found


def of_excerpts(store: Store, key: str, attempt: int, at_s: float | None) -> Iterator[Clue]:
    """Of the logs that were read: `key` is the run's id, or the job's with attempt 0."""
    for excerpt in store.excerpts.get((key, attempt), {}).values():
        ranks = () if excerpt.rank is None else (excerpt.rank,)
        subject = "The job" if excerpt.rank is None else ""
        yield from of_lines(excerpt.lines, excerpt.log, at_s, ranks=ranks, subject=subject)


def of_lines(
    lines: Sequence[str],
    quoted_from: str,
    at_s: float | None,
    *,
    ranks: tuple[int, ...] = (),
    subject: str = "",
) -> Iterator[Clue]:
    """Of a log: its last chain of tracebacks counts more than the lines before and after."""
    lines = [line[:LINE] for line in lines[-LINES:]]
    begin = _last_chain(lines)
    end = len(lines) if begin is None else _end_of_chain(lines, begin)
    of_snippet: tuple[int, ...] = ()
    for number, line in enumerate(lines):
        text = plain(line)
        if (snippet := _SNIPPET.match(text)) is not None:
            of_snippet = (int(snippet[1]),)
        bonus = 0 if begin is None else TRACEBACK if begin <= number < end else EARLIER
        found = clue_of(
            line, quoted_from, at_s, ranks=of_snippet or ranks, bonus=bonus,
            subject=subject,
        )  # fmt: skip
        if found is not None:
            yield found


def _last_chain(lines: Sequence[str]) -> int | None:
    """The start of the last chain of tracebacks; 0 if it was cut off."""
    begins = [
        at
        for at, line in enumerate(lines)
        if "Traceback (most recent call last)" in line
        and not (at and _IGNORED.match(plain(lines[at - 1])))
    ]
    if not begins:
        return 0 if any(_FRAME.match(plain(line)) for line in lines) else None
    first = begins[-1]
    for at in reversed(begins[:-1]):
        between = "\n".join(lines[at:first])
        if "The above exception was" not in between and "During handling" not in between:
            break
        first = at
    return first


def _end_of_chain(lines: Sequence[str], begin: int) -> int:
    """The end of the chain that begins there; that of the log if later lines may be the cause."""
    end, is_explained, is_in_frames = begin, False, False
    for at, line in enumerate(lines[begin:], begin):
        text = plain(line)
        if is_explained and _IGNORED.match(text):
            break
        if _FRAME.match(text):
            is_in_frames = True
        elif is_in_frames and _EXCEPTION.match(text):
            end, is_in_frames = at + 1, False
            rule = match(text)
            is_explained |= rule is not None and not rule.is_victim and rule.weight >= EXCEPTION
    return end if is_explained and len(lines) - end <= CLEANUP else len(lines)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(", ")[:1024])
