"""The configuration of the guard: `[guard]`, and `[profiles.NAME.guard]` over it.

[guard]
hang = "restart"               # observe, capture, restart, replace
repeated_failure = "cordon"    # observe, capture, replace, cordon, stop
failures = 3
budget = 3
confidence = "high"            # or medium
dry_run = false
protected = false              # true: it may change protected clusters
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpit.guard.policy import ACTIONS, Action, Policy, Trigger
from cockpit.insight.hang.types import Confidence
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

_CONFIDENCES = (Confidence.HIGH.value, Confidence.MEDIUM.value)
_KNOWN = ("hang", "repeated_failure", "failures", "budget", "confidence", "dry_run", "protected")


def parse(table: Mapping[str, Any], of: str = "the configuration") -> Policy:
    """Raises UsageError for what is no setting, or no value of it; `of` is where the table is."""
    try:
        return _policy(table)
    except ValueError as error:
        what, why = error.args
        raise UsageError(
            f"[guard] in {of} is not understood: {what}.", why, "See docs/guard.md."
        ) from error


def _policy(table: Mapping[str, Any]) -> Policy:
    for key in table:
        if key not in _KNOWN:
            raise ValueError(one_line(key), f"There are: {', '.join(_KNOWN)}.")
    policy = Policy()
    return Policy(
        _action(table, "hang", Trigger.HANG),
        _action(table, "repeated_failure", Trigger.REPEATED_FAILURE),
        _count(table, "failures", policy.failures),
        _count(table, "budget", policy.budget),
        Confidence(_choice(table, "confidence", policy.confidence.value, _CONFIDENCES)),
        _truth(table, "dry_run"),
        _truth(table, "protected"),
    )


def _action(table: Mapping[str, Any], key: str, trigger: Trigger) -> Action:
    choices = [action.value for action in ACTIONS[trigger]]
    return Action(_choice(table, key, Action.OBSERVE.value, choices))


def _choice(
    table: Mapping[str, Any], key: str, default: str, choices: list[str] | tuple[str, ...]
) -> str:
    value = table.get(key, default)
    if value not in choices:
        raise ValueError(f"{key} = {one_line(repr(value))}", f"It is one of: {', '.join(choices)}.")
    return str(value)


def _count(table: Mapping[str, Any], key: str, default: int) -> int:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} = {one_line(repr(value))}", "It is a whole number, 1 or more.")
    return value


def _truth(table: Mapping[str, Any], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} = {one_line(repr(value))}", "It is true or false.")
    return value
