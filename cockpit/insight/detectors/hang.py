"""A run that makes no progress, with the ranks that cause it."""

from __future__ import annotations

from cockpit.insight.hang.types import Confidence, Kind
from cockpit.insight.hang.verdict import verdict
from cockpit.model.alert import Finding, Severity
from cockpit.store.run import RunView

_TODO = {
    Kind.FROZEN: "See the state of the process on its node; kill the rank to restart from the "
    "newest checkpoint",
    Kind.NETWORK: "Check the links and the interface of the ranks' nodes",
    Kind.MISMATCH: "The ranks take different branches: compare their code and data at that line",
    Kind.DEADLOCK: "Call the groups' collectives in the same order on all ranks",
}
_TODO_ELSE = "cockpit hang shows the stacks; kill the rank to restart from the newest checkpoint"


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
            _TODO.get(found.kind, _TODO_ELSE),
            run.id,
        )
    ]
