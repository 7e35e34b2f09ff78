"""Grow an elastic run as soon as a node has joined, at a moment that costs few steps.

Ray's policy compares the cluster with the run every `elastic_resize_monitor_interval_s` after a
restart, 60 s by default, independent of checkpoints
(`make_decision_for_running_worker_group` in
train/v2/_internal/execution/scaling_policy/elastic.py, Ray 2.60). It still does so. Besides, it is
made to do so at once after a checkpoint was accepted, or at any time if the run has checkpoints in
memory, when the nodes that are alive have room for more ranks, and spare processes for them: all
ranks would wait for one that imports its libraries first.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ray.train.v2._internal.execution.scaling_policy.elastic import ElasticScalingPolicy

from training.recovery.nodes import Node
from training.recovery.settings import CHECK_EVERY_S, SPARES_S

log = logging.getLogger(__name__)

DECISION = "make_decision_for_running_worker_group"


class Growth:
    """Of one run. Not thread-safe: the controller calls it."""

    def __init__(
        self,
        most: int,
        resources: Mapping[str, float],
        alive: Callable[[], Sequence[Node]],
        lacks_spare: Callable[[str], bool],
        is_in_memory: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most`: ranks that the run may have. `resources`: of each. `lacks_spare`: whether a node,
        by its id, will have a spare process and has none yet. `is_in_memory`: whether the run has
        checkpoints in memory. It and `alive` ask the GCS: at most every CHECK_EVERY_S.
        """
        self.most, self._resources = most, resources
        self._alive, self._lacks_spare = alive, lacks_spare
        self._is_in_memory, self._clock = is_in_memory, clock
        self._checked_s = float("-inf")
        self._room_s: float | None = None
        """Since when nodes that the run was not compared with have had room for more ranks."""
        self._has_memory = self._has_missed = False
        """Of that time: the run has checkpoints in memory; one was accepted before the spares were
        there."""
        self._considered: frozenset[str] = frozenset()
        """The nodes with which the run was compared: Ray may not count all that have room."""
        self._nodes: frozenset[str] = frozenset()
        self._has_saved = False

    def saved(self) -> None:
        """A checkpoint was accepted."""
        self._has_saved = True

    def is_due(self, ranks: int) -> bool:
        """Whether the run, which has this many ranks, should be compared with the cluster now."""
        has_saved, self._has_saved = self._has_saved, False
        if ranks >= self.most:
            self._room_s = None
            return False
        now_s = self._clock()
        if now_s - self._checked_s >= CHECK_EVERY_S:
            self._checked_s = now_s
            self._look(ranks, now_s)
        if self._room_s is None:
            return False
        if now_s - self._room_s > SPARES_S:
            has_saved |= self._has_missed
        elif any(self._lacks_spare(node) for node in self._nodes):
            self._has_missed |= has_saved
            return False
        if not (has_saved or self._has_memory):
            return False
        self._considered, self._room_s = self._nodes, None
        return True

    def _look(self, ranks: int, now_s: float) -> None:
        rooms = {node.id: node.room(self._resources) for node in self._alive()}
        self._nodes = frozenset(name for name, room in rooms.items() if room)
        is_new = sum(rooms.values()) > ranks and self._nodes != self._considered
        self._has_memory = is_new and self._is_in_memory()
        if not is_new:
            self._room_s = None
        elif self._room_s is None:
            self._room_s, self._has_missed = now_s, False


def grow(growth: Growth, refresh: Callable[[], None]) -> None:
    """Patch this process, which is the controller of one run.

    `refresh`: make Ray count the nodes again; until then it counts those of up to 20 s before.
    """
    decide = getattr(ElasticScalingPolicy, DECISION)
    decide = getattr(decide, "__wrapped__", decide)

    @functools.wraps(decide)
    def decided(policy: Any, worker_group_state: Any, worker_group_status: Any) -> Any:
        try:
            if growth.is_due(worker_group_state.num_workers):
                refresh()
                policy._latest_monitor_time = float("-inf")
                policy._latest_reserved_resources_query_time = float("-inf")
                worker_group_state = replace(worker_group_state, start_time=float("-inf"))
        except Exception:
            log.exception("The run grows at the next check of Ray's")
        return decide(policy, worker_group_state, worker_group_status)

    setattr(ElasticScalingPolicy, DECISION, decided)
