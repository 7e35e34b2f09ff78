"""Prices and the budget: the configuration's `[cost]`, and what a run's pods cost in an hour.

[cost]
currency = "EUR"
budget = 500.0                             # of one run
pod_hour = { "gpu-a100" = 32.77, cpu = 0.4 } # by worker group: the price of its node type
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from cockpit.model.error import UsageError
from cockpit.model.text import one_line
from cockpit.store.run import RunView
from cockpit.store.store import Store

KEYS = ("currency", "budget", "pod_hour")
CURRENCY_CHARS = 8


class Prices(Struct, frozen=True):
    pod_hour: Mapping[str, float] = field(default_factory=dict)
    """The price of a pod for an hour, by worker group."""
    budget: float = 0.0
    """Of one run; 0: none."""
    currency: str = ""


def money(amount: float, currency: str) -> str:
    """An amount, for people."""
    return f"{amount:,.2f} {currency}".rstrip()


def parse(raw: Mapping[str, Any]) -> Prices:
    """Read the table `[cost]`. Raises UsageError for what is not understood."""
    for key in raw:
        if key not in KEYS:
            raise _wrong(f"cost.{one_line(key)} is no setting.", f"There are: {', '.join(KEYS)}.")
    named = raw.get("pod_hour", {})
    if not isinstance(named, Mapping):
        raise _wrong("cost.pod_hour is not understood.", 'It looks like { "gpu" = 32.77 }.')
    currency = raw.get("currency", "")
    if not isinstance(currency, str) or len(currency) > CURRENCY_CHARS:
        raise _wrong("cost.currency is not understood.", "It is a short text, such as EUR.")
    return Prices(
        {str(group): _money(f"pod_hour.{group}", price) for group, price in named.items()},
        _money("budget", raw.get("budget", 0.0)),
        one_line(currency),
    )


def money_per_hour(store: Store, run: RunView, prices: Prices) -> float:
    """The price of the pods on which the newest attempt has ranks; 0 if no group has a price.

    A pod counts as a whole, whether the run uses all of it or not.
    """
    attempt = run.attempt
    if attempt is None or not prices.pod_hour:
        return 0.0
    used = {placed.node_ip for placed in attempt.placements}
    pods = (pod for pod in store.pods.values() if pod.ip and pod.ip in used)
    return math.fsum(prices.pod_hour.get(pod.group, 0.0) for pod in pods)


def _money(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(f"cost.{one_line(name)} is not understood: {value!r}.", "It is a number >= 0.")
    if not math.isfinite(value) or value < 0:
        raise _wrong(f"cost.{one_line(name)} is not understood: {value!r}.", "It is a number >= 0.")
    return float(value)


def _wrong(what: str, why: str) -> UsageError:
    return UsageError(what, why, "docs/diagnosis.md describes [cost].")
