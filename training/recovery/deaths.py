"""A run restarts whenever a rank dies, also at moments at which Ray Train 2.60 ends or stalls it.

While the ranks meet, and while they are told to begin: the group that failed to start is not ended
if it had come so far that it counts as started (`_start` in
train/v2/_internal/execution/worker_group/worker_group.py), and nobody knows it any more. Its ranks
and its placement group hold their resources for good, and every later group waits for them in vain.

While they are told to begin: an actor's death is to Ray Train no failure of the worker group then,
as it is a moment before and after, but a defect of the controller (the last call of `_start_impl`).
At the end: before a restart the ranks leave their process group, and Ray Train bears it that some
have died; but of one that the memory monitor killed the answer is an OutOfMemoryError, which it
does not bear (train/v2/_internal/callbacks/backend_setup.py). A defect of the controller ends the
run, whatever `max_failures` says (failure_handling/default.py).
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from ray.exceptions import OutOfMemoryError, RayActorError
from ray.train.v2._internal.callbacks.backend_setup import BackendSetupCallback
from ray.train.v2._internal.execution.failure_handling import default
from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

log = logging.getLogger(__name__)

START = "_start"
HOOK = "before_execution_group_shutdown"
RETRIED = "RETRYABLE_CONTROLLER_ERRORS"


def end_what_did_not_start() -> None:
    """In this process, for all runs of it; once is enough."""
    start = getattr(WorkerGroup, START)
    if hasattr(start, "__wrapped__"):
        return

    @functools.wraps(start)
    def whole(group: Any) -> None:
        try:
            start(group)
        except Exception:
            if group.has_started():
                _abort(group)
            raise

    setattr(WorkerGroup, START, whole)


def _abort(group: Any) -> None:
    """Of the ranks that are left nothing is asked: they may wait for those that are not."""
    try:
        group.abort()
    except Exception:
        log.exception("The resources of a worker group that did not start may still be held")


def bear_at_start() -> None:
    """In this process, for all runs of it; once is enough. It is charged to the controller's own
    limit, which is none by default, as is a worker group that does not start in time.
    """
    retried = getattr(default, RETRIED)
    if RayActorError not in retried:
        setattr(default, RETRIED, (*retried, RayActorError))


def bear_at_end() -> None:
    """In this process, for all runs of it; once is enough."""
    leave = getattr(BackendSetupCallback, HOOK)
    if hasattr(leave, "__wrapped__"):
        return

    @functools.wraps(leave)
    def borne(callback: Any, group: Any) -> None:
        try:
            leave(callback, group)
        except OutOfMemoryError as error:
            log.warning(
                "A rank was killed for its node's memory: %s", str(error).partition("\n")[0]
            )

    setattr(BackendSetupCallback, HOOK, borne)
