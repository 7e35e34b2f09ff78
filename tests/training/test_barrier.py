"""The barrier of Ray Train's ranks in one process, without a cluster; on one it is in
tests/backends/test_fast_recovery.py."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

ray = pytest.importorskip("ray")

from ray.train.v2._internal.exceptions import BroadcastCollectiveTimeoutError  # noqa: E402
from ray.train.v2._internal.execution.checkpoint.sync_actor import (  # noqa: E402
    SynchronizationActor,
    SynchronizationBarrierResetError,
)
from ray.train.v2._internal.execution.worker_group import state, worker_group  # noqa: E402

from training.recovery import barrier  # noqa: E402
from training.recovery.barrier import Barrier, Barriers, Starter  # noqa: E402

SETTINGS = {"timeout_s": 60.0, "warn_interval_s": 60.0}
HERE = {"label_selector": {"ray.io/node-id": "head"}}


def calls(
    barriers: Barriers, attempt: int, rank: int, data: Any = None
) -> Coroutine[Any, Any, Any]:
    given = {"world_rank": rank, "world_size": 2, "data": data, "caller_method_name": "report"}
    return barriers.call(attempt, "broadcast_from_rank_zero", (), given)


async def test_ranks_of_an_attempt_get_what_rank_0_gives() -> None:
    barriers = Barriers(0, SETTINGS)
    assert [*await asyncio.gather(calls(barriers, 0, 1), calls(barriers, 0, 0, "a"))] == ["a", "a"]
    await barriers.open(1, SETTINGS)
    assert [*await asyncio.gather(calls(barriers, 1, 0, "b"), calls(barriers, 1, 1))] == ["b", "b"]


async def test_rank_of_an_earlier_attempt_ends_and_does_not_disturb_the_next() -> None:
    barriers = Barriers(0, SETTINGS)
    waiting = asyncio.create_task(calls(barriers, 0, 0, "stale"))
    await asyncio.sleep(0)
    await barriers.open(1, SETTINGS)
    with pytest.raises(SynchronizationBarrierResetError):
        await waiting
    first = asyncio.create_task(calls(barriers, 1, 1))
    await asyncio.sleep(0)
    with pytest.raises(SynchronizationBarrierResetError, match="Attempt 0 of the run has ended"):
        await calls(barriers, 0, 0, "stale")
    await barriers.end(0)
    assert not first.done()
    assert [*await asyncio.gather(first, calls(barriers, 1, 0, "new"))] == ["new", "new"]


async def test_settings_are_those_of_ray_train() -> None:
    barriers = Barriers(0, {**SETTINGS, "timeout_s": 0.01})
    with pytest.raises(BroadcastCollectiveTimeoutError, match=r"0\.01"):
        await calls(barriers, 0, 1)


class Actor:
    """An actor in a thread of this process, with the calls of Ray's."""

    def __init__(self, instance: Barriers) -> None:
        self.instance = instance
        self.is_dead = False

    def __getattr__(self, name: str) -> Any:
        def remote(*args: Any) -> Future[Any]:
            async def act() -> Any:
                if self.is_dead:
                    raise ray.exceptions.ActorDiedError
                return await getattr(self.instance, name)(*args)

            return THREAD.submit(asyncio.run, act())

        return type("Method", (), {"remote": staticmethod(remote)})


THREAD = ThreadPoolExecutor(1)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Mapping[str, Any], Actor]]:
    """The options of each actor that was started, and the actor."""
    found: list[tuple[Mapping[str, Any], Actor]] = []

    class Class:
        def __init__(self, actor_class: Any) -> None:
            self.actor_class = actor_class

        def options(self, **options: Any) -> Class:
            self.given = options
            return self

        def remote(self, *args: Any) -> Actor:
            found.append((self.given, Actor(self.actor_class(*args))))
            return found[-1][1]

    monkeypatch.setattr(ray, "remote", lambda **resources: Class)
    monkeypatch.setattr(ray, "get", lambda future, timeout: future.result(timeout))
    return found


def test_all_attempts_use_one_actor_until_it_dies(
    started: list[tuple[Mapping[str, Any], Actor]],
) -> None:
    starter = Starter()
    attempts = [starter.options(**HERE).remote(**SETTINGS) for _ in range(3)]
    assert [options for options, _ in started] == [HERE]
    assert attempts[2].set_required_ranks.remote([0]).result() is True
    with pytest.raises(SynchronizationBarrierResetError):
        attempts[1].set_required_ranks.remote([0]).result()
    started[0][1].is_dead = True
    fourth = starter.options(**HERE).remote(**SETTINGS)
    assert len(started) == 2
    assert fourth.reset.remote().result() is None


def test_ray_train_starts_and_ends_it(
    started: list[tuple[Mapping[str, Any], Actor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[Any] = []
    monkeypatch.setattr(worker_group, "SynchronizationActor", SynchronizationActor)
    monkeypatch.setattr(state, "_shutdown_sync_actor", lambda actor: killed.append(actor))
    for _ in range(2):
        barrier.keep_one_process()
    assert isinstance(worker_group.SynchronizationActor, Starter)
    made: Any = worker_group.SynchronizationActor.options(**HERE).remote(**SETTINGS)
    state._shutdown_sync_actor(made)
    with pytest.raises(SynchronizationBarrierResetError):
        made.set_required_ranks.remote([0]).result()
    assert not killed
    state._shutdown_sync_actor("an actor of Ray Train")
    assert killed == ["an actor of Ray Train"]


def test_what_the_ranks_get_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(Barrier("actor", 3)))
    assert vars(copy.reset) == {"_actor": "actor", "_attempt": 3, "_name": "reset"}
