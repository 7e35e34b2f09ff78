"""Report Ray Train's lifecycle to the telemetry stream without a change to the user's script.

Loaded by `RAY_TRAIN_CALLBACKS=training.telemetry.callback.TelemetryCallback` in the driver's
environment. It is created in the driver, pickled, and runs in the controller actor; an exception of
a hook would fail the run (CallbackManager.invoke), so every hook here is guarded. The base classes
are in an internal module of Ray 2.60: the tests pin what is used of it.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.train.v2._internal.execution.callback import (
    ControllerCallback,
    ReplicaGroupCallback,
    ReportCallback,
    WorkerGroupCallback,
)

from training.patch import wrap
from training.telemetry.failsafe import guarded
from training.telemetry.gpu.gpu import by_name
from training.telemetry.head.aggregator import connect
from training.telemetry.head.outbox import ActorOutbox
from training.telemetry.ray_train import failure_budget, lineage, placement, replicas
from training.telemetry.ray_train.checkpoint_size import Sizes
from training.telemetry.ray_train.end_reason import lacking, preempted, reason
from training.telemetry.ray_train.lifecycle import Lifecycle
from training.telemetry.ray_train.lineage import Lineage
from training.telemetry.ray_train.submission import submission
from training.telemetry.settings import FINAL_FLUSH_TIMEOUT_S, FLUSH_TIMEOUT_S
from training.telemetry.wire import Worker
from training.telemetry.worker import attempt_observer, worker

log = logging.getLogger(__name__)


class TelemetryCallback(
    ControllerCallback,  # type: ignore[misc]
    WorkerGroupCallback,  # type: ignore[misc]
    ReplicaGroupCallback,  # type: ignore[misc]
    ReportCallback,  # type: ignore[misc]
):
    def __init__(self) -> None:
        self._aggregator: Any = None
        self._outbox: ActorOutbox | None = None
        self._lifecycle: Lifecycle | None = None
        self._worker_group: Any = None
        self._sizes: Sizes | None = None
        self._storage: Any = None
        self._trial = ""
        self._has_replicas = self._replaces = False
        self._open_in_driver()
        self._find_trial()

    @guarded
    def _open_in_driver(self) -> None:
        """An actor lives as long as the process that created it: the driver outlives its runs."""
        if ray.is_initialized():
            self._aggregator = connect(ray.get_runtime_context().get_job_id())
            _kept.append(self._aggregator)

    @guarded
    def _find_trial(self) -> None:
        """A trial of Tune is the driver of its run."""
        if (tune := sys.modules.get("ray.tune")) is not None:
            self._trial = str(tune.get_context().get_trial_id() or "")

    @guarded
    def after_controller_start(self, train_run_context: Any) -> None:
        _list_without_uuids()
        job = ray.get_runtime_context().get_job_id()
        run_config = train_run_context.run_config
        self._storage = run_config.storage_context
        backend = getattr(train_run_context, "backend_config", None)
        self._has_replicas = backend is not None and bool(
            getattr(backend.backend_cls, "has_replica_groups", False)
        )
        before = self._lineage()
        self._outbox = ActorOutbox(job, self._aggregator)
        self._lifecycle = Lifecycle(
            run=before.run if before else train_run_context.run_id,
            name=run_config.name or "",
            job=job,
            submission=submission(),
            outbox=self._outbox,
            attempts=before.attempts if before else 0,
            trial=self._trial,
            max_failures=_limit(run_config, failure_budget.FAILURES),
            max_preemption_failures=_limit(run_config, failure_budget.PREEMPTIONS),
        )
        self._sizes = Sizes(self._lifecycle.send)
        if self._has_replicas:
            replicas.listen(guarded(self._lifecycle.quorum))
        self._lifecycle.state("INITIALIZING")
        if before and before.is_up:
            self._lifecycle.cut_off(before.attempts)

    def _lineage(self) -> Lineage | None:
        try:
            return lineage.read(self._storage)
        except Exception:
            log.warning(
                "telemetry: the record of an earlier driver could not be read", exc_info=True
            )
            return None

    @guarded
    def _remember(self) -> None:
        """For a driver that resumes this run after this one was killed."""
        if self._lifecycle is not None:
            reported = Lineage(self._lifecycle.run, self._lifecycle.attempt, self._lifecycle.is_up)
            lineage.write(self._storage, reported)

    @contextmanager
    def on_worker_group_start(self) -> Iterator[None]:
        """A context for everything before the training function."""
        self._begin_start()
        try:
            yield
        finally:
            placement.listen(None)
        self._phase("first step")  # not after a failure, which is raised at the yield

    @guarded
    def _phase(self, phase: str) -> None:
        if self._lifecycle is not None:
            self._lifecycle.phase(phase)

    @guarded
    def _begin_start(self) -> None:
        if self._replaces and self._lifecycle is not None:  # not in place, because all were lost
            self._replaces = False
            self._lifecycle.attempt_ends("all replicas were lost", failure_budget.FAILURES)
        self._phase("placement group")
        placement.listen(self._placed)

    def _placed(self) -> None:
        self._phase("actor start")

    @guarded
    def after_worker_group_start(self, worker_group: Any) -> None:
        """Callbacks from the environment run before Ray's own, which create the process group."""
        if self._lifecycle is None or self._outbox is None:
            return
        self._worker_group = worker_group
        workers = worker_group.get_workers()
        attempt = self._lifecycle.attempt_starts([_worker(item) for item in workers])
        self._lifecycle.phase("process group")
        self._attach(workers, attempt)
        self._remember()

    @guarded
    def after_replica_group_start(self, replica_group: Any) -> None:
        """The ranks of a lost replica group have new processes, in the same attempt."""
        if self._lifecycle is None:
            return
        workers = replica_group.get_workers()
        self._lifecycle.replaced([_worker(item) for item in workers])
        self._attach(workers, self._lifecycle.attempt)

    def before_replica_group_shutdown(self, replica_group: Any) -> None:
        """Nothing: its ranks have died."""

    def _attach(self, workers: Sequence[Any], attempt: int) -> None:
        if self._lifecycle is None or self._outbox is None:
            return
        run, job, aggregator = self._lifecycle.run, self._lifecycle.job, self._outbox.aggregator
        for item in workers:
            # Not awaited: an actor executes one caller's calls in order, so this runs before the
            # training function, and a failure has no effect on it.
            rank = item.distributed_context.world_rank
            gpus = tuple(map(str, item.metadata.gpu_ids))
            item.execute_async(worker.attach, run, job, attempt, rank, gpus, aggregator)
            item.execute_async(attempt_observer.attach, run, attempt, rank, aggregator)

    @guarded
    def after_report(self, training_report: Any, metrics: list[dict[str, Any]]) -> None:
        if self._lifecycle is None or self._sizes is None:
            return
        report, checkpoint = self._lifecycle.reported(metrics), training_report.checkpoint
        if checkpoint is not None:
            from training.checkpoint.filesystem import shown

            path = shown(checkpoint.filesystem, str(checkpoint.path))
            report = dataclasses.replace(report, checkpoint=path)
        self._sizes.take(self._lifecycle.now(), report, checkpoint)

    @guarded
    def after_controller_state_update(self, previous_state: Any, current_state: Any) -> None:
        if self._lifecycle is None or self._outbox is None:
            return
        state = current_state._state_type
        # SHUTTING_DOWN contains the next state, and RESIZING has no error.
        leads_to = getattr(current_state, "next_state", current_state)
        error = getattr(leads_to, "training_failed_error", None)
        why = reason(error)
        if self._goes_on(state.name, error, why):
            return
        if state.name == "RESIZING":
            why = f"resized to {current_state.scaling_decision.num_workers} workers"
        elif state.name == "PREEMPTING":
            why = preempted(current_state.preemption_info)
        elif state.name == "SCHEDULING":
            wanted = current_state.scaling_decision
            why = lacking(wanted.num_workers, wanted.resources_per_worker, ray.cluster_resources())
        if self._lifecycle.is_up and (state.name in _ENDS or state.is_terminal):
            dead = self._flush_workers()
            why = reason(error, dead) or why
            ended = leads_to._state_type.name
            self._drain_sizes(ends_run=leads_to._state_type.is_terminal)
            self._lifecycle.attempt_ends(
                why or {"FINISHED": "finished"}.get(ended, ended.lower()),
                failure_budget.charged(error) if error is not None else _COSTS.get(ended, ""),
            )
            self._remember()
        self._lifecycle.state(state.name, why)
        if state.is_terminal:
            self._outbox.drain(FINAL_FLUSH_TIMEOUT_S)

    def _goes_on(self, state: str, error: BaseException | None, why: str) -> bool:
        """Whether the controller only replaces lost replicas: the attempt and the run continue."""
        if self._lifecycle is None or not self._has_replicas or not self._lifecycle.is_up:
            return False
        failed = getattr(error, "worker_failures", None)
        if state == "RESTARTING" and isinstance(failed, Mapping):
            self._replaces = 0 < len(failed) < self._lifecycle.world_size
            for rank in sorted(failed) if self._replaces else ():
                text = why.removeprefix(f"rank {rank}: ")
                self._lifecycle.notice(rank, "ReplicaLost", f"{text}; the other replicas continue")
        elif state == "RUNNING" or state not in ("SCHEDULING", "RESCHEDULING", "RESTARTING"):
            self._replaces = False
        return self._replaces

    @guarded
    def after_controller_finish(self, result: Any) -> None:
        """A training function that stops itself returns the reason in `{"stopped": sentence}`."""
        returned = result.return_value
        stopped = returned.get("stopped") if isinstance(returned, dict) else None
        if stopped and self._lifecycle is not None and self._outbox is not None:
            self._lifecycle.state("FINISHED", str(stopped))
            self._outbox.drain(FINAL_FLUSH_TIMEOUT_S)

    def _drain_sizes(self, *, ends_run: bool) -> None:
        """An attempt's reports come before its end, but a slow storage delays no restart: then they
        follow.
        """
        if self._sizes is not None:
            self._sizes.drain(FINAL_FLUSH_TIMEOUT_S if ends_run else FLUSH_TIMEOUT_S)

    def _flush_workers(self) -> dict[int, BaseException]:
        """Make the ranks that are still alive send their last numbers. Returns the dead ones, with
        why.
        """
        if not self._worker_group.has_started():
            return {}  # it failed to start, and was ended at once
        asked = {
            item.execute_async(worker.flush, FLUSH_TIMEOUT_S): item.distributed_context.world_rank
            for item in self._worker_group.get_workers()
        }
        self._worker_group = None
        done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=FLUSH_TIMEOUT_S)
        dead: dict[int, BaseException] = {}
        for reference in done:
            try:
                ray.get(reference)
            except ray.exceptions.RayActorError as error:
                dead[asked[reference]] = error
            except ray.exceptions.RayError:
                continue  # a rank that cannot import this package has nothing to send
        return dead


_ENDS = frozenset({"RESTARTING", "RESCHEDULING", "RESIZING", "SHUTTING_DOWN"})
"""The states in which the worker group's training is over."""

_COSTS = {"RESIZING": failure_budget.NOTHING, "FINISHED": failure_budget.NOTHING}

_kept: list[Any] = []
"""Keeps the driver's aggregator alive, independent of the callback."""


def _limit(run_config: Any, name: str) -> int | None:
    value = getattr(run_config.failure_config, name, None)
    return value if isinstance(value, int) else None


def _worker(item: Any) -> Worker:
    return Worker(
        rank=item.distributed_context.world_rank,
        node_id=str(item.metadata.node_id),
        node_ip=str(item.metadata.node_ip),
        pid=int(item.metadata.pid),
        **by_name(item.metadata.gpu_ids),
    )


@guarded
def _list_without_uuids() -> None:
    """Ray Train ends a run whose GPUs have UUIDs instead of indices, if it lists its runs for the
    dashboard: its record of a worker accepts only numbers (ray.train.v2._internal.state, Ray 2.60).
    """
    from ray.train.v2._internal.state import state_manager

    wrap(state_manager, "TrainWorker", _worker_without_uuids)


def _worker_without_uuids(old: Callable[..., Any], **given: Any) -> Any:
    return old(**given | {"gpu_ids": [gpu for gpu in given["gpu_ids"] if str(gpu).isdigit()]})
