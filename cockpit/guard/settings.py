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

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any

from cockpit.guard.policy import ACTIONS, Policy, Trigger
from cockpit.insight.hang.types import Confidence
from cockpit.model.decoding.settings_table import checked, types_of
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

_CHOICES: dict[str, Collection[StrEnum]] = {
    "hang": ACTIONS[Trigger.HANG],
    "repeated_failure": ACTIONS[Trigger.REPEATED_FAILURE],
    "confidence": (Confidence.HIGH, Confidence.MEDIUM),
}


def parse(table: Mapping[str, Any], of: str = "the configuration") -> Policy:
    """Raises UsageError for what is no setting, or no value of it; `of` is where the table is."""
    types = types_of(Policy)
    del types["held_back"]
    prefix, todo = f"[guard] in {of}: ", "See docs/guard.md."
    values = checked(table, types, prefix, todo)
    for key, choices in _CHOICES.items():
        if values.get(key, next(iter(choices))) not in choices:
            what = f"{prefix}{key} is not understood: {one_line(repr(table[key]))}."
            raise UsageError(what, f"It must be one of: {', '.join(choices)}.", todo)
    return Policy(**values)
