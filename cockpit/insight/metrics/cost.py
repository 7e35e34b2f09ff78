"""The cost of lost time: GPU-hours by cause, and money if a price is set.

GPU-hours(cause) = seconds lost to it * GPUs held / 3600, money = GPU-hours * price

GPUs are those of the newest attempt: a resized run is priced as if it always had as many.
"""

from __future__ import annotations

from msgspec import Struct

from cockpit.insight.metrics.goodput import Goodput


class Cost(Struct, frozen=True):
    """GPU-hours of the run so far."""

    gpus: float
    all_gpu_hours: float
    lost_gpu_hours: dict[str, float]
    """By cause, as in `Goodput.lost_s`."""
    price: float
    """Of a GPU-hour; 0 when not set."""

    @property
    def lost(self) -> float:
        """GPU-hours."""
        return sum(self.lost_gpu_hours.values())

    @property
    def lost_money(self) -> float | None:
        return self.lost * self.price if self.price > 0 else None


def cost(found: Goodput, gpus: float, price_per_gpu_hour: float = 0.0) -> Cost | None:
    """None without GPUs."""
    if gpus <= 0:
        return None
    hours = {cause: seconds * gpus / 3600 for cause, seconds in found.lost_s.items()}
    return Cost(gpus, found.wall_s * gpus / 3600, hours, price_per_gpu_hour)
