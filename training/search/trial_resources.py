"""The resources of a trial, and the number of parallel trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = "node:__internal_head__"
"""A resource that every head node has once, and no other node."""
TICKETS = 0.9
"""The share of it for all trials; telemetry uses another small part."""


def parallel(workers: int, max_parallel: int, most: int) -> int:
    """The number of parallel trials; 0: as many as there are CPUs or GPUs.

    The ranks of a Ray Train run reserve theirs separately from Tune, which would start one trial
    after the other, all of them waiting for resources that the others have.
    """
    fit = max(1, most // workers) if workers > 1 else 0
    return min(fit, max_parallel) if fit and max_parallel else fit or max_parallel


def trial_resources(each: Mapping[str, float], most: int, workers: int, max_parallel: int) -> Any:
    """The resources of one trial, whose ranks need `each`, for `tune.with_resources`. `most` ranks
    fit.

    Each running trial holds a ticket. Tune's own limit also counts paused trials, so that a
    population or a bracket would never be complete (Ray 2.60, BasicVariantGenerator).
    """
    from ray.tune import PlacementGroupFactory

    own = [dict(each)] if workers == 1 else []
    many = parallel(workers, max_parallel, most)
    ticket = [{HEAD: int(TICKETS / many * 10_000) / 10_000}] if many else []  # as Ray counts
    return PlacementGroupFactory([*own, *ticket], strategy="SPREAD")
