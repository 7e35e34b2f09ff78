"""Whether the clocks of the pods agree, from the times of their answers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from cockpit.format import duration
from cockpit.preflight.facts import Answer
from cockpit.preflight.finding import Finding, State

MAX_S = 1.0
"""A larger difference disturbs the times of logs and the expiry of leases and tokens."""


def clocks(answers: Mapping[str, Answer]) -> Iterator[Finding]:
    """Report the difference that is certain: a slow answer makes it smaller, never larger."""
    offsets = {pod: found for pod, of in answers.items() if (found := offset(of)) is not None}
    if len(offsets) < 2:
        return
    ahead = max(offsets, key=lambda pod: offsets[pod][0])
    behind = min(offsets, key=lambda pod: offsets[pod][1])
    apart_s = offsets[ahead][0] - offsets[behind][1]
    if apart_s <= MAX_S:
        certain_to = max(high - low for low, high in offsets.values())
        limit = duration(max(MAX_S, certain_to))
        yield Finding("clocks", State.OK, f"no pod differs by more than {limit}")
        return
    yield Finding(
        "clocks",
        State.WARNING,
        f"{ahead} is at least {duration(apart_s)} ahead of {behind}.",
        "Synchronize the clocks of their nodes (NTP, chrony).",
        (ahead, behind),
    )


def offset(answer: Answer) -> tuple[float, float] | None:
    """Return how far the pod's clock is ahead of this host's: at least and at most, in seconds.

    The probe began after the request was sent, and ended before its answer was received.
    """
    facts = answer.facts
    if facts is None or not math.isfinite(facts.began_s) or not math.isfinite(facts.now_s):
        return None
    low, high = facts.now_s - answer.received_s, facts.began_s - answer.sent_s
    return (low, high) if low <= high else None
