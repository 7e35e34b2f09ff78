"""What a trial takes of the cluster, and how many run at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = "node:__internal_head__"
"""Every head node has one of it, and no other node any."""
TICKETS = 0.9
"""Of that one, for all trials; telemetry has its own small part of it."""


def parallel(workers: int, max_parallel: int, most: int) -> int:
    """How many trials run at a time; 0 for as many as find a CPU or GPU.

    The ranks of a Ray Train run take theirs beside Tune, which would start one trial after the
    other, each of them waiting for ranks with those that it has.
    """
    fit = max(1, most // workers) if workers > 1 else 0
    return min(fit, max_parallel) if fit and max_parallel else fit or max_parallel


def trial_resources(each: Mapping[str, float], most: int, workers: int, max_parallel: int) -> Any:
    """Of one trial, whose ranks take `each`, for `tune.with_resources`. `most` ranks can run.

    A ticket is held by each trial that runs. Tune's own limit counts trials that are paused too, so
    that a population or a bracket would never be whole (Ray 2.60, BasicVariantGenerator).
    """
    from ray.tune import PlacementGroupFactory

    own = [dict(each)] if workers == 1 else []
    many = parallel(workers, max_parallel, most)
    ticket = [{HEAD: int(TICKETS / many * 10_000) / 10_000}] if many else []  # as Ray counts
    return PlacementGroupFactory([*own, *ticket], strategy="SPREAD")
