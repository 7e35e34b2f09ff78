"""The limits of what a cluster may cost."""

from __future__ import annotations

from msgspec import Struct


class Spending(Struct, frozen=True):
    """Limits in US cents; `None`: no limit."""

    max_per_hour: int | None = None
    max_total: int | None = None
    """Of all instances that this cluster ever had, since its first `up`."""
    confirm_above: int = 0
    """Per hour: `up` asks above it."""
    idle_s: float | None = None
    """Without a job for so long, the cluster counts as idle."""
    ends_idle: bool = False
    """Terminate the instances of an idle cluster; else only report it."""
