"""The sum of the replicas' gradients, by a gloo process group of each quorum."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, TCPStore

from training.replicas.client import QuorumClient
from training.replicas.membership import Quorum

FORM_S = 120.0
"""How long the members wait for each other: one of them may be receiving its state."""
_CHECK_EVERY_S = 0.005


class SumFailed(Exception):
    """A member is lost, or did not respond in time."""


class GradientSum:
    def __init__(self, client: QuorumClient, timeout_s: float) -> None:
        """`timeout_s`: how long a sum waits for a member that does not respond."""
        self._client, self._replica = client, client.replica
        self._store = TCPStore(client.host, client.store_port, is_master=False)
        self._timeout = timedelta(seconds=timeout_s)
        self._group: Any = None
        self._number = 0
        self._waiting = 0, SimpleQueue[tuple[Any, str]]()
        """The quorum whose members this one waits for, and what ends that."""
        client.on_lost = self._end_waiting

    def form(self, quorum: Quorum) -> None:
        """Form the quorum's group, when all its members are ready. Raises SumFailed if one is lost
        before.
        """
        if quorum.number == self._number:
            return
        self.abort()
        members, number = quorum.members, quorum.number
        if len(members) > 1:
            store = PrefixStore(str(number), self._store)
            store.set(f"ready-{self._replica}", "")
            ready = [f"ready-{member}" for member in members]
            deadline = time.monotonic() + FORM_S
            while not store.check(ready):
                if not self._client.is_whole(number) or time.monotonic() > deadline:
                    raise SumFailed(f"quorum {number} is not complete")
                time.sleep(_CHECK_EVERY_S)
            self._group = self._unless_lost(
                number,
                lambda: ProcessGroupGloo(
                    store, members.index(self._replica), len(members), self._timeout
                ),
            )
        self._number = number

    def add(self, values: Tensor) -> None:
        """Replace the values by their sum over the members. Raises SumFailed; the values are then
        undefined, and may still change.
        """
        group = self._group
        if group is None:
            return
        try:
            self._unless_lost(self._number, lambda: group.allreduce([values]).wait())
        except SumFailed:
            self.abort()
            raise

    def abort(self) -> None:
        """Leave the group: without it, its connections are closed, and the other members' sums
        fail. Gloo has no call for that.
        """
        self._group, self._number = None, 0

    def _unless_lost(self, number: int, act: Callable[[], Any]) -> Any:
        """Return what `act` returns. Raises SumFailed if it fails, or a member of the quorum is
        lost: a host without power closes no connection, and gloo would wait until its timeout.
        Then `act` is left alone, on its thread.
        """
        answers = SimpleQueue[tuple[Any, str]]()
        self._waiting = number, answers
        if not self._client.is_whole(number):  # `_end_waiting` may have come before
            raise SumFailed(f"quorum {number} has lost a member")
        threading.Thread(target=_act, args=(act, answers), name="sum", daemon=True).start()
        result, why = answers.get()
        if why:
            raise SumFailed(why)
        return result

    def _end_waiting(self, lost: int) -> None:
        number, answers = self._waiting
        if number <= lost:
            answers.put((None, f"quorum {number} has lost a member"))


def _act(act: Callable[[], Any], answers: SimpleQueue[tuple[Any, str]]) -> None:
    """Put the result, or why it failed: an exception would hold the group by its traceback."""
    try:
        answers.put((act(), ""))
    except RuntimeError as error:
        answers.put((None, _sentence(error)))


def _sentence(error: RuntimeError) -> str:
    """The first sentence of gloo's message, without its source line."""
    return re.sub(r"^\[[^\]]*\] ?", "", str(error)).partition(". ")[0]
