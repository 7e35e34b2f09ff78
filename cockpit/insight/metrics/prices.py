"""Prices and the budget: the configuration's `[cost]`, and what a run's pods cost in an hour.

[cost]
currency = "EUR"
budget = 500.0                             # of one run
pod_hour = { "gpu-a100" = 32.77, cpu = 0.4 } # by worker group: the price of its node type
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from cockpit.model.decoding.settings_table import Number, checked, types_of
from cockpit.model.text import one_line
from cockpit.store.run import RunView
from cockpit.store.store import Store


class Prices(Struct, frozen=True):
    pod_hour: dict[str, Number] = field(default_factory=dict)
    """The price of a pod for an hour, by worker group."""
    budget: float = 0.0
    """Of one run; 0: none."""
    currency: Annotated[str, Meta(max_length=8)] = ""


def money(amount: float, currency: str) -> str:
    """An amount, for people."""
    return f"{amount:,.2f} {currency}".rstrip()


def parse(raw: Mapping[str, Any]) -> Prices:
    """Read the table `[cost]`. Raises UsageError for what is not understood."""
    values = checked(raw, types_of(Prices), "cost.", "docs/diagnosis.md describes [cost].")
    return Prices(**values | {"currency": one_line(values.get("currency", ""))})


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
