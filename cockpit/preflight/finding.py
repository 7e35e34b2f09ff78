"""The result of one check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from msgspec import Struct

from cockpit.format import plural


class State(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not checked; `found` has the reason."""


class Finding(Struct, frozen=True):
    name: str
    state: State
    found: str
    fix: str = ""
    pods: tuple[str, ...] = ()
    """The pods with the problem."""

    @property
    def line(self) -> str:
        """The finding in one line, for a plan or a dialog."""
        fix = f" {self.fix}" if self.fix else ""
        return f"{self.state.value}: {self.name}: {self.found}{fix}"


def failed(findings: Iterable[Finding]) -> list[Finding]:
    return [one for one in findings if one.state is State.FAILED]


def attention(findings: Iterable[Finding]) -> list[Finding]:
    """All findings but those that are ok, the failed ones first."""
    states = (State.FAILED, State.WARNING, State.SKIPPED)
    chosen = [one for one in findings if one.state in states]
    return sorted(chosen, key=lambda one: states.index(one.state))


def summary(findings: Sequence[Finding]) -> str:
    """`Preflight: 9 ok, 1 warning, 2 failed.`"""
    counts = [(sum(one.state is state for one in findings), state) for state in State]
    shown = [
        plural(count, state.value) if state is State.WARNING else f"{count} {state.value}"
        for count, state in counts
        if count
    ]
    return f"Preflight: {', '.join(shown) or 'nothing to check'}."


def listed(names: Iterable[str], most: int = 3) -> str:
    """`a`, `a and b`, `a, b, c and 4 more`."""
    unique = list(dict.fromkeys(names))
    if len(unique) > most:
        return f"{', '.join(unique[:most])} and {len(unique) - most} more"
    return " and ".join(filter(None, (", ".join(unique[:-1]), unique[-1]))) if unique else ""
