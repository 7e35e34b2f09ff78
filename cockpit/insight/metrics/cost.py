"""The cost of a run and of its lost time: GPU-hours by cause, and money if a price is set.

GPU-hours(cause) = seconds lost to it * GPUs held / 3600
money = hours * (the price of the run's pods for an hour, or GPUs held * price of a GPU-hour)
failures = restarts with their restores, redone steps and stalls, of the lost time

Pods and GPUs are those of the newest attempt: a resized run is priced as if it always had as many.
"""

from __future__ import annotations

from msgspec import Struct

from cockpit.insight.metrics.goodput import Goodput, goodput
from cockpit.insight.metrics.prices import Prices, money, money_per_hour
from cockpit.insight.metrics.progress import gpus_of
from cockpit.model.alert import Finding, Severity
from cockpit.store.run import RunView
from cockpit.store.store import Store

NEAR_PERCENT = 90.0
"""Of the budget: from here on there is an alert."""


class Cost(Struct, frozen=True):
    """The cost of the run so far."""

    gpus: float
    all_gpu_hours: float
    lost_gpu_hours: dict[str, float]
    """By cause, as in `Goodput.lost_s`; empty without GPUs."""
    spent: float | None = None
    """Money; None without a price."""
    lost_money: float | None = None
    """The part of `spent` in which the run did not get on; None if that is not known."""
    currency: str = ""
    budget: float = 0.0
    """0: none."""
    failures_money: float | None = None
    """The part of `lost_money` that failures caused."""
    failures_gpu_hours: float = 0.0
    """The part of `lost` that failures caused."""
    per_hour: float = 0.0
    """Money; 0 without a price."""

    @property
    def lost(self) -> float:
        """GPU-hours."""
        return sum(self.lost_gpu_hours.values())

    @property
    def text(self) -> str:
        """The money, for people; empty without a price."""
        if self.spent is None:
            return ""
        line = money(self.spent, self.currency)
        if self.lost_money is not None:
            line += f", {money(self.lost_money, self.currency)} of it in lost time"
        if self.failures_money:
            line += f" ({money(self.failures_money, self.currency)} by failures)"
        if self.budget > 0:
            percent = 100 * self.spent / self.budget
            line += f"; {percent:.0f} % of the budget of {money(self.budget, self.currency)}"
        return line


def cost(
    found: Goodput,
    gpus: float,
    price_per_gpu_hour: float = 0.0,
    per_hour: float = 0.0,
    prices: Prices = Prices(),  # noqa: B008  it is frozen
) -> Cost | None:
    """None without GPUs and without a price. `per_hour`: money of all pods, before that of GPUs."""
    per_hour = per_hour or gpus * price_per_gpu_hour
    if gpus <= 0 and per_hour <= 0:
        return None
    hours = {cause: seconds * gpus / 3600 for cause, seconds in found.lost_s.items()}
    lost_s = None if found.useful_s is None else sum(found.lost_s.values())
    return Cost(
        gpus,
        found.wall_s * gpus / 3600,
        hours if gpus > 0 else {},
        found.wall_s / 3600 * per_hour if per_hour > 0 else None,
        lost_s / 3600 * per_hour if per_hour > 0 and lost_s is not None else None,
        prices.currency,
        prices.budget,
        found.failures_s / 3600 * per_hour if per_hour > 0 and lost_s is not None else None,
        found.failures_s * gpus / 3600,
        per_hour,
    )


def cost_of(
    store: Store, run: RunView, now_s: float, prices: Prices, price_per_gpu_hour: float = 0.0
) -> Cost | None:
    """The cost of a run until now, or until its end."""
    found = goodput(run, now_s)
    if found is None:
        return None
    per_hour = money_per_hour(store, run, prices)
    return cost(found, gpus_of(run), price_per_gpu_hour, per_hour, prices)


def find(
    store: Store, run: RunView, now_s: float, prices: Prices, price_per_gpu_hour: float
) -> list[Finding]:
    """`over-budget`: the run has cost nearly its budget, or more."""
    if prices.budget <= 0:
        return []
    spent = cost_of(store, run, now_s, prices, price_per_gpu_hour)
    if spent is None or spent.spent is None:
        return []
    percent = 100 * spent.spent / prices.budget
    if percent < NEAR_PERCENT:
        return []
    return [
        Finding(
            "over-budget",
            f"run {run.id}",
            Severity.CRITICAL if percent >= 100 else Severity.WARNING,
            f"The run has cost {percent:.0f} % of its budget",
            spent.text,
            "Stop the run, or raise budget under [cost]",
            run.id,
        )
    ]
