"""A run that makes no progress, with the ranks that cause it."""

from __future__ import annotations

from cockpit.insight.hang.advice import actions
from cockpit.insight.hang.types import Confidence, Kind
from cockpit.insight.hang.verdict import verdict
from cockpit.model.alert import Finding, Severity
from cockpit.store.run import RunView


def find(run: RunView, now_s: float) -> list[Finding]:
    """Nothing for a run that waits for resources, which `stuck-start` is about."""
    found = verdict(run, now_s)
    if found is None or found.kind is Kind.RESOURCES or found.confidence is Confidence.LOW:
        return []
    return [
        Finding(
            "hang",
            f"run {run.id}",
            Severity.CRITICAL,
            found.sentence,
            f"{found.kind.value}, confidence {found.confidence.value}: {found.evidence[-1]}",
            ". ".join(actions(found)),
            run.id,
        )
    ]
