"""Restart a run whenever a rank dies, also when Ray Train 2.60 would end or stall it.

While the ranks form the process group, and while they receive the start command: a group that
failed to start is not ended if it already counts as started (`_start` in
train/v2/_internal/execution/worker_group/worker_group.py), and nothing refers to it any more. Its
ranks and its placement group keep their resources, and every later group waits for them forever.

While they receive the start command: at that moment Ray Train treats an actor's death not as a
failure of the worker group, as before and after, but as a defect of the controller (the last call
of `_start_impl`). At the end: before a restart the ranks leave their process group, and Ray Train
tolerates that some have died. If the memory monitor killed one, the answer is an OutOfMemoryError,
which it does not tolerate (train/v2/_internal/callbacks/backend_setup.py). A defect of the
controller ends the run, independent of `max_failures` (failure_handling/default.py).

When a rank is frozen, Ray Train first asks it to leave the process group and then to shut down, and
waits for the answers for up to 2 and 5 s (`on_shutdown` in train/torch/config.py with the profile
`fast`, and `_shutdown_workers` in train/v2/_internal/execution/worker_group/state.py).

Ray Train compares instants, so a rank would also count as frozen if the controller itself was
stopped for that long, although its answer is waiting to be read. Such time is not counted here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.train.v2._internal.callbacks.backend_setup import BackendSetupCallback
from ray.train.v2._internal.exceptions import WorkerHealthCheckTimeoutError
from ray.train.v2._internal.execution.failure_handling import default
from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

from training.patch import wrap
from training.telemetry.failsafe import guarded

log = logging.getLogger(__name__)

START = "_start"
HOOK = "before_execution_group_shutdown"
POLL = "_poll_workers_and_collect_errors"
LATE_S = 2.0
"""From the end of a poll to that of the next one, two intervals pass at most: the controller waits
for one, then the poll for another. What exceeds them by more than this is a stop of the controller.
"""
RETRIED = "RETRYABLE_CONTROLLER_ERRORS"


def end_what_did_not_start() -> None:
    """Change this process, for all of its runs."""
    wrap(WorkerGroup, START, _start)


def _start(start: Callable[..., None], group: Any) -> None:
    try:
        start(group)
    except Exception:
        if group.has_started():
            _abort(group)
        raise


def _abort(group: Any) -> None:
    """Nothing is requested from the remaining ranks: they may wait for the dead ones."""
    try:
        group.abort()
    except Exception:
        log.exception("The resources of a worker group that did not start may still be held")


def bear_at_start() -> None:
    """Patch this process, for all of its runs; once is enough. The failure is charged to the
    controller's own limit, which is unlimited by default, like a worker group that does not start
    in time.
    """
    retried = getattr(default, RETRIED)
    if RayActorError not in retried:
        setattr(default, RETRIED, (*retried, RayActorError))


def bear_at_end() -> None:
    """Change this process, for all of its runs."""
    wrap(BackendSetupCallback, HOOK, _leave)


def _leave(leave: Callable[..., None], callback: Any, group: Any) -> None:
    try:
        leave(callback, group)
    except OutOfMemoryError as error:
        log.warning("A rank was killed for its node's memory: %s", str(error).partition("\n")[0])


def count_no_stall_of_the_controller() -> None:
    """Change this process, for all of its runs."""
    wrap(WorkerGroup, POLL, _poll)


def _poll(poll: Callable[..., list[Any]], group: Any, interval_s: float | None) -> list[Any]:
    began_s = time.monotonic()
    statuses = poll(group, interval_s)
    _excuse(group, statuses, began_s, interval_s or 0.0)
    return statuses


@guarded
def _excuse(group: Any, statuses: list[Any], began_s: float, interval_s: float) -> None:
    """If this poll ended late, move the instants of the requests by as much: it does not count."""
    now_s = time.monotonic()
    before_s, group.polled_s = getattr(group, "polled_s", began_s), now_s
    late_s = now_s - before_s - 2 * interval_s - LATE_S
    if late_s <= 0.0:
        return
    requests = group._world_rank_to_ongoing_poll
    for rank, request in list(requests.items()):
        start_s = min(request.start_time + late_s, now_s)
        requests[rank] = replace(request, start_time=start_s)
        is_frozen = now_s - start_s > group._worker_health_check_timeout_s
        if isinstance(statuses[rank].error, WorkerHealthCheckTimeoutError) and not is_frozen:
            statuses[rank] = replace(statuses[rank], error=None)
            log.warning("rank %d is not taken for frozen: the controller itself was stopped", rank)


def end_the_frozen(workers: Sequence[Any], errors: Mapping[int, BaseException]) -> None:
    """Kill the ranks that did not answer in time, so that nothing waits for their answers.

    `workers`: those of the group, by rank. `errors`: what a poll found, by rank.
    """
    for rank, error in errors.items():
        if isinstance(error, WorkerHealthCheckTimeoutError):
            ray.kill(workers[rank].actor)
