"""Ray Train's barrier of the ranks, in one process for all attempts of a run.

Ray Train 2.60 starts a `SynchronizationActor` for each attempt: a process that imports Ray and Ray
Train, which takes 2 s of CPU just when the ranks start. Here one actor has a barrier for each
attempt. A rank of an earlier attempt, on a node that was unreachable and has come back, cannot
disturb the ranks of this one: its barrier has ended.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import ray
from ray.train.v2._internal.execution.checkpoint.sync_actor import (
    SynchronizationActor,
    SynchronizationBarrierResetError,
)
from ray.train.v2._internal.execution.worker_group import state, worker_group

from training.patch import wrap
from training.recovery.nodes import ANSWER_S

log = logging.getLogger(__name__)

_BARRIER: Any = SynchronizationActor.__ray_actor_class__
"""The class itself, without Ray's remote calls."""


def keep_one_process() -> None:
    """Change this process, for all of its runs."""
    if not isinstance(worker_group.SynchronizationActor, Starter):
        worker_group.SynchronizationActor = Starter()
        wrap(state, "_shutdown_sync_actor", _shut_down)


def _shut_down(shut_down: Callable[[Any], None], barrier: Any) -> None:
    if isinstance(barrier, Barrier):
        barrier.end()
    else:
        shut_down(barrier)


class Starter:
    """Takes the place of the actor's class where Ray Train starts it."""

    def __init__(self) -> None:
        self._options: Mapping[str, Any] = {}
        self._attempts = count()
        self._actor: Any = None

    def options(self, **options: Any) -> Starter:
        self._options = options
        return self

    def remote(self, **settings: Any) -> Barrier:
        """Return the barrier of a new attempt. `settings` are those of Ray Train's actor."""
        attempt = next(self._attempts)
        if self._actor is None or not self._opens(attempt, settings):
            actor_class = ray.remote(num_cpus=0)(Barriers).options(**self._options)
            self._actor = actor_class.remote(attempt, settings)
        return Barrier(self._actor, attempt)

    def _opens(self, attempt: int, settings: Mapping[str, Any]) -> bool:
        try:
            ray.get(self._actor.open.remote(attempt, settings), timeout=ANSWER_S)
        except ray.exceptions.RayError as error:  # it has died, or does not respond
            log.info("a new process serves the barrier of the ranks: %s", error)
            return False
        return True


class Barriers:
    """The actor. Only the barrier of the newest attempt is open."""

    def __init__(self, attempt: int, settings: Mapping[str, Any]) -> None:
        self._attempt = attempt
        self._barrier: Any = _BARRIER(**settings)

    async def open(self, attempt: int, settings: Mapping[str, Any]) -> None:
        await self.end(self._attempt)
        self._attempt, self._barrier = attempt, _BARRIER(**settings)

    async def end(self, attempt: int) -> None:
        """Ranks that wait in it get the error that Ray Train has for a barrier that is reset."""
        if attempt == self._attempt and self._barrier is not None:
            barrier, self._barrier = self._barrier, None
            await barrier.reset()

    async def call(self, attempt: int, name: str, args: Any, kwargs: Any) -> Any:
        if attempt != self._attempt or self._barrier is None:
            raise SynchronizationBarrierResetError(f"Attempt {attempt} of the run has ended.")
        result = getattr(self._barrier, name)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result


class Barrier:
    """What the ranks and the controller have in place of the actor's handle."""

    def __init__(self, actor: Any, attempt: int) -> None:
        self._actor, self._attempt = actor, attempt
        self.broadcast_from_rank_zero = Method(actor, attempt, "broadcast_from_rank_zero")
        self.set_required_ranks = Method(actor, attempt, "set_required_ranks")
        self.reset = Method(actor, attempt, "reset")

    def end(self) -> None:
        self._actor.end.remote(self._attempt)


class Method:
    """A method of the actor, called as Ray calls one."""

    def __init__(self, actor: Any, attempt: int, name: str) -> None:
        self._actor, self._attempt, self._name = actor, attempt, name

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        return self._actor.call.remote(self._attempt, self._name, args, kwargs)
