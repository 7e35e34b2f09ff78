"""Restart an elastic run immediately on the remaining nodes.

Its policy asks an actor for the available resources, which the actor updates every 20 s only
(`_AutoscalingCoordinatorActor.TICK_INTERVAL_S`, Ray 2.60). So it counts a node that has just died,
starts a group of the old size, and waits for a replacement. A call can make the actor update
immediately.
"""

from __future__ import annotations

import time
from collections.abc import Collection

import ray

from training.recovery.nodes import dying
from training.recovery.settings import DYING_S

ANSWER_S = 5.0
_POLL_S = 0.1


def wait_for_the_dead(ids: Collection[str]) -> None:
    """Wait until the GCS knows which of these nodes have died, at most DYING_S."""
    deadline = time.monotonic() + DYING_S
    while dying(ids) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def refresh(run_id: str) -> None:
    """Make the actor update its view of the cluster. Raises what Ray raises."""
    from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import (
        get_or_create_autoscaling_coordinator,
    )

    coordinator = get_or_create_autoscaling_coordinator()
    asked = coordinator.get_reserved_resources.remote(f"train-{run_id}", recompute=True)
    ray.get(asked, timeout=ANSWER_S)
