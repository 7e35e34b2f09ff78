"""The holders of a Ray Train run: an actor on each node of the run, which the driver's actor owns.

An actor ends with its owner, which runs on the node of the driver, and all end with the job, so
that nothing remains in memory after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from training import connection
from training.checkpoint.memory.holder import Holder
from training.checkpoint.memory.sets import STALLED_S
from training.connection import Address, NoAnswer

ANSWER_S = 30.0
"""The owner's host may be busy. Without its answer, all that is in memory is dropped."""
START_S = 120.0
"""How long the actor of a node may take to start."""
_CALLS = 64


def actor_name(run: str) -> str:
    return f"checkpoints-in-memory-{run}"


@contextmanager
def keeping(run: str) -> Iterator[None]:
    """During this, ranks of the run can use `RayHolders`. Call it in the driver."""
    keeper = (
        ray.remote(Keeper)
        .options(
            name=actor_name(run),
            num_cpus=0,
            max_concurrency=_CALLS,
            max_restarts=-1,
            # Any other node may be lost without the run.
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id(), soft=False),
        )
        .remote()
    )
    try:
        ray.get(keeper.known.remote(), timeout=START_S)
        yield
    finally:
        ray.kill(keeper)


class Keeper:
    """The owner of the holders."""

    def __init__(self) -> None:
        self._token = connection.new_token()
        self._holders: dict[str, tuple[Any, Address]] = {}
        """By the name of the local socket, the actor and its address."""
        self._locks: dict[str, Lock] = defaultdict(Lock)
        """By node."""

    def known(self) -> list[Address]:
        return [address for _, address in list(self._holders.values())]

    def of(self, node: str) -> Address:
        """Start a holder on the node if none answers there, and end those that do not: there is
        memory for one. Raises RayError if that fails.
        """
        with self._locks[node]:
            for there in self.known():
                if there.node == node:
                    if _answers(there):
                        return there
                    self.forget([there])
            actor = (
                ray.remote(NodeHolder)
                .options(
                    num_cpus=0,
                    scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                )
                .remote(node, self._token)
            )
            address: Address = ray.get(actor.address.remote(), timeout=START_S)
            self._holders[address.local] = (actor, address)
            return address

    def forget(self, lost: Sequence[Address]) -> None:
        """End holders that do not answer: what they have is not used any more."""
        for address in lost:
            actor, _ = self._holders.pop(address.local, (None, None))
            if actor is not None:
                ray.kill(actor)


class NodeHolder:
    """The holder of a node, as an actor."""

    def __init__(self, node: str, token: bytes) -> None:
        self._holder = Holder(node, ray.util.get_node_ip_address(), token)

    def address(self) -> Address:
        return self._holder.address


class RayHolders:
    """The holders as a rank sees them. Methods raise NoAnswer if the owner does not answer."""

    def __init__(self, run: str) -> None:
        self._name = actor_name(run)

    def known(self) -> Sequence[Address]:
        found: list[Address] = self._asked("known", ANSWER_S)
        return found

    def of(self, node: str) -> Address:
        found: Address = self._asked("of", START_S, node)
        return found

    def forget(self, lost: Sequence[Address]) -> None:
        self._asked("forget", ANSWER_S, lost)

    def _asked(self, method: str, timeout_s: float, *args: Any) -> Any:
        try:
            keeper = ray.get_actor(self._name)
            return ray.get(getattr(keeper, method).remote(*args), timeout=timeout_s)
        except (RayError, ValueError) as error:  # ValueError: there is no such actor
            first = str(error).partition("\n")[0]
            raise NoAnswer(f"the actor {self._name} does not answer: {first}") from error


def node_id() -> str:
    """Ray's id of this process's node."""
    return str(ray.get_runtime_context().get_node_id())


def _answers(address: Address) -> bool:
    try:
        with connection.connected(address, answer_s=STALLED_S):
            return True
    except OSError:
        return False
