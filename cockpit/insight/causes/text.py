"""A verdict as lines of text, for the verb, the screen and alerts."""

from __future__ import annotations

from cockpit import format
from cockpit.insight.causes.types import Cause


def headline(cause: Cause) -> str:
    """Category and sentence on one line."""
    return f"{cause.category.value}: {cause.sentence}"


def advice(cause: Cause) -> str:
    return f"{cause.advice.value}: {cause.advice_reason}."


def lines(cause: Cause) -> list[str]:
    ended = "Run" if cause.run_id else f"Job {cause.job_id}"
    if cause.attempt is not None:
        ended = f"Attempt {cause.attempt}"
    text = [
        f"{ended}: {headline(cause)}",
        f"  Confidence: {cause.confidence.value}. {advice(cause)}",
    ]
    facts = [
        ("since", _moment(cause.since_s)),
        ("pod", cause.pod),
        ("node", cause.node),
    ]
    shown = [f"{name} {value}" for name, value in facts if value]
    if cause.ranks:
        shown.insert(1, format.ranks(cause.ranks))
    if shown:
        text.append(f"  {', '.join(shown)}")
    if cause.quote:
        text.append(f"  {cause.quoted_from}: {cause.quote}")
    if cause.evidence:
        text += ["  Also reported:", *(f"    {line}" for line in cause.evidence)]
    return text


def _moment(at_s: float | None) -> str:
    return "" if at_s is None else format.moment(at_s)
