"""The attempts of a run as events, with one text for the UI and the verbs."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from cockpit import format
from cockpit.model.text import one_line
from cockpit.store.run import RunView


class AttemptEvent(Struct, frozen=True):
    """The start or the end of an attempt."""

    at_s: float
    number: int
    message: str
    is_end: bool = False
    warning: bool = False
    """Whether it ended for another reason than that it finished."""


def attempt_events(run: RunView) -> Iterator[AttemptEvent]:
    """Yield the start and the end of each attempt, as far as they are known."""
    for number, attempt in run.attempts.items():
        if attempt.started_s is not None:
            message = "started"
            if count := len(attempt.placements):
                message += f" with {format.plural(count, 'rank')}"
            if attempt.first_step is not None and number > 1:
                message += f", resumed at step {attempt.first_step:,}"
            yield AttemptEvent(attempt.started_s, number, message)
        if attempt.ended_s is not None:
            yield AttemptEvent(
                attempt.ended_s,
                number,
                attempt_end(attempt.reason),
                is_end=True,
                warning=attempt.reason not in ("", "finished"),
            )


def attempt_end(reason: str, at: str = "") -> str:
    """`ended: rank 1 died`, or `ended at 09:30:00: …` with a time."""
    when = f" at {at}" if at else ""
    return f"ended{when}: {one_line(reason or 'finished', 300)}"
