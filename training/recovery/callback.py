"""Recovery in Ray Train's controller, without a change to the user's script.

Loaded by `RAY_TRAIN_CALLBACKS=training.recovery.callback.RecoveryCallback`. Every hook is guarded:
if another version of Ray lacks something, the run restarts as Ray does it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray
from ray.train.v2._internal.execution.callback import (
    ControllerCallback,
    ReplicaGroupCallback,
    ReportCallback,
    WorkerGroupCallback,
)

from training.checkpoint.memory.on_ray import actor_name
from training.recovery import deaths, elastic, forkserver, libraries, nodes, spares
from training.recovery.growth import Growth, grow
from training.recovery.settings import CHECK_EVERY_S, SPARES
from training.recovery.spares import OWN_PYTHON, Known, Spares
from training.telemetry.failsafe import guarded

log = logging.getLogger(__name__)


class RecoveryCallback(
    ControllerCallback,  # type: ignore[misc]
    WorkerGroupCallback,  # type: ignore[misc]
    ReplicaGroupCallback,  # type: ignore[misc]
    ReportCallback,  # type: ignore[misc]
):
    def __init__(self) -> None:
        self._spares: Spares | None = None
        self._known = Known()
        self._imported = libraries.imported()
        """By the driver, in which this is created."""
        self._has_hook = self._fork = False
        self._elastic_run = ""
        self._ranks = Counter[str]()
        """Of the last attempt, by node id."""
        self._counted_s = float("-inf")
        self._growth: Growth | None = None
        self._group: Any = None

    @guarded
    def after_controller_start(self, train_run_context: Any) -> None:
        deaths.end_what_did_not_start()
        deaths.bear_at_start()
        deaths.bear_at_end()
        deaths.count_no_stall_of_the_controller()
        _start_fewer_actors()
        self._elastic_run = (
            train_run_context.run_id if train_run_context.scaling_config.elasticity_enabled else ""
        )
        if self._elastic_run:
            self._grow(train_run_context)
        # If the script sets an environment for ranks, it is not changed.
        environment = train_run_context.run_config.worker_runtime_env
        if SPARES and not environment:
            environment["env_vars"] = dict(spares.HOOK)
            self._has_hook = True
            self._fork = not OWN_PYTHON & set(ray.get_runtime_context().runtime_env)
            if self._fork:
                environment["py_executable"] = forkserver.COMMAND
                resources = train_run_context.scaling_config._resources_per_worker_not_none
                libraries.publish(libraries.of_ranks(self._imported, resources))
        elif SPARES:
            log.warning(
                "no spare processes are kept: the run has a runtime environment of its own (%s)",
                ", ".join(environment.get("env_vars", environment)),
            )

    def _grow(self, train_run_context: Any) -> None:
        scaling, name = train_run_context.scaling_config, train_run_context.run_config.name

        def is_in_memory() -> bool:
            try:
                ray.get_actor(actor_name(name))
            except ValueError:  # there is no such actor
                return False
            return True

        def lacks_spare(node: str) -> bool:
            return self._has_hook and self._known.lacks(node)

        self._growth = Growth(
            scaling.max_workers,
            scaling._resources_per_worker_not_none,
            nodes.alive,
            lacks_spare,
            is_in_memory,
        )
        grow(self._growth, lambda: elastic.refresh(self._elastic_run))

    @guarded
    def on_controller_start_worker_group(
        self, *, scaling_config: Any, num_workers: int
    ) -> dict[str, str] | None:
        """Place ranks where they have spares. A label selector of the script stays as it is."""
        if not self._has_hook:
            return None
        libraries.hurry()
        if scaling_config.label_selector:
            return None
        return spares.placement(
            self._known.kept,
            self._ranks,
            scaling_config._resources_per_worker_not_none,
            num_workers,
            scaling_config.placement_strategy,
        )

    @guarded
    def after_report(self, training_report: Any, metrics: Any) -> None:
        if self._growth is not None and training_report.checkpoint is not None:
            self._growth.saved()

    @guarded
    def after_worker_group_start(self, worker_group: Any) -> None:
        """Also of a group whose ranks do not meet: its processes were spares in all attempts but
        the first.
        """
        if self._has_hook:
            self._use(worker_group.get_workers())

    @guarded
    def after_worker_group_training_start(self, worker_group: Any) -> None:
        self._group = worker_group
        workers = worker_group.get_workers()
        self._ranks = Counter(item.metadata.node_id for item in workers)
        if self._has_hook:
            resources = worker_group.get_resources_per_worker()
            is_short = self._growth is not None and len(workers) < self._growth.most
            self._spares = Spares(
                workers, resources, self._known, fork=self._fork, is_short=is_short
            )

    @guarded
    def after_replica_group_start(self, replica_group: Any) -> None:
        if self._has_hook:
            self._use(replica_group.get_workers())

    def _use(self, workers: Sequence[Any]) -> None:
        for item in workers:
            self._known.remove(item.metadata.node_id)

    @guarded
    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        if self._group is not None and (errors := worker_group_status.errors):
            deaths.end_the_frozen(self._group.get_workers(), errors)

    @guarded
    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        if self._spares is not None:
            self._spares.stop()

    @guarded
    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:
        """Called repeatedly by the controller while an elastic run has too few nodes."""
        waits = current_state._state_type.name in ("RESTARTING", "RESCHEDULING")
        if not self._elastic_run or not waits:
            return
        if type(previous_state) is not type(current_state):
            elastic.wait_for_the_dead(self._ranks)
        elif time.monotonic() - self._counted_s < CHECK_EVERY_S:
            return
        elastic.refresh(self._elastic_run)
        self._counted_s = time.monotonic()


@guarded
def _start_fewer_actors() -> None:
    """Imported here: another version of Ray may lack what it changes, and the rest still works."""
    from training.recovery.actors import provide_no_datasets, watch_for_drains_here
    from training.recovery.barrier import keep_one_process

    provide_no_datasets()
    watch_for_drains_here()
    keep_one_process()
