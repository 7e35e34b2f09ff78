"""Prices and the budget: the configuration's `[cost]`, and what a run's pods cost in an hour.

[cost]
currency = "EUR"
budget = 500.0                                # of one run
node_hour = { "p4d.24xlarge" = 32.77 }        # by node type
pod_hour = { "gpu-a100" = 32.77, cpu = 0.4 }  # by worker group
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from cockpit.model.cluster import Pod
from cockpit.model.decoding.settings_table import Number, checked, types_of
from cockpit.model.text import one_line
from cockpit.store.history import Past, PodPast
from cockpit.store.run import AttemptView, RunView
from cockpit.store.store import Store


class Prices(Struct, frozen=True):
    pod_hour: dict[str, Number] = field(default_factory=dict)
    """The price of a pod for an hour, by worker group."""
    budget: float = 0.0
    """Of one run; 0: none."""
    currency: Annotated[str, Meta(max_length=8)] = ""
    node_hour: dict[str, Number] = field(default_factory=dict)
    """The price of a node for an hour, by its type, for pods of groups without a price."""


def money(amount: float, currency: str) -> str:
    """An amount, for people."""
    return f"{amount:,.2f} {currency}".rstrip()


def parse(raw: Mapping[str, Any]) -> Prices:
    """Read the table `[cost]`. Raises UsageError for what is not understood."""
    values = checked(raw, types_of(Prices), "cost.", "docs/diagnosis.md describes [cost].")
    return Prices(**values | {"currency": one_line(values.get("currency", ""))})


def money_per_hour(store: Store, run: RunView, prices: Prices) -> float:
    """The price of the pods on which the newest attempt has ranks; 0 if none has a price.

    A pod counts as a whole, whether the run uses all of it or not. Of a node that is priced by its
    type, the run has the share of the GPUs that its pods request, or all of a node without GPUs.
    """
    attempt = run.attempt
    if attempt is None or not (prices.pod_hour or prices.node_hour):
        return 0.0
    found: list[float] = []
    on_node: dict[str, float] = {}
    for pod in _pods_of(store, attempt):
        if pod.group in prices.pod_hour:
            found.append(prices.pod_hour[pod.group])
        elif pod.host:
            on_node[pod.host] = on_node.get(pod.host, 0.0) + pod.gpus
    for node, gpus in on_node.items():
        found.append(_of_node(store.past, node, gpus, prices))
    return math.fsum(found)


def _of_node(past: Past, node: str, gpus: float, prices: Prices) -> float:
    kind = past.node_kinds.get(node)
    if kind is None:
        return 0.0
    share = min(1.0, gpus / kind.gpus) if gpus > 0 and kind.gpus > 0 else 1.0
    return share * prices.node_hour.get(kind.type, 0.0)


def _pods_of(store: Store, attempt: AttemptView) -> Iterator[Pod | PodPast]:
    """The pods at the addresses of the ranks; of an attempt that is over, also deleted pods."""
    used = {placed.node_ip for placed in attempt.placements}
    there = [pod for pod in store.pods.values() if pod.ip and pod.ip in used]
    yield from there
    missing = used - {pod.ip for pod in there}
    if not missing:
        return
    for past in reversed(store.past.pods.values()):
        was_there = past.removed_s is None or past.removed_s >= (attempt.started_s or 0.0)
        if past.ip in missing and was_there:
            missing.remove(past.ip)
            yield past
