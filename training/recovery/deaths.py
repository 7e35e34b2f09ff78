"""A run restarts whenever a rank dies, also at two moments at which Ray Train 2.60 ends it.

At its start: an actor's death while the ranks are told to begin is to Ray Train no failure of the
worker group, as it is a moment before and after, but a defect of the controller (the last call of
`_start_impl` in train/v2/_internal/execution/worker_group/worker_group.py). At its end: before a
restart the ranks leave their process group, and Ray Train bears it that some have died; but of one
that the memory monitor killed the answer is an OutOfMemoryError, which it does not bear
(train/v2/_internal/callbacks/backend_setup.py). A defect of the controller ends the run, whatever
`max_failures` says (failure_handling/default.py).
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from ray.exceptions import OutOfMemoryError, RayActorError
from ray.train.v2._internal.callbacks.backend_setup import BackendSetupCallback
from ray.train.v2._internal.execution.failure_handling import default

log = logging.getLogger(__name__)

HOOK = "before_execution_group_shutdown"
RETRIED = "RETRYABLE_CONTROLLER_ERRORS"


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
