"""The sum of the replicas' gradients, by a gloo process group of each quorum."""

from __future__ import annotations

import re
import time
from datetime import timedelta
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
            # Creating a group cannot be aborted, so it starts when no member is missing.
            ready = [f"ready-{member}" for member in members]
            deadline = time.monotonic() + FORM_S
            while not store.check(ready):
                if not self._client.is_whole(number) or time.monotonic() > deadline:
                    raise SumFailed(f"quorum {number} is not complete")
                time.sleep(_CHECK_EVERY_S)
            try:
                group = ProcessGroupGloo(
                    store, members.index(self._replica), len(members), self._timeout
                )
            except RuntimeError as error:
                raise SumFailed(_sentence(error)) from error
            self._group = group
        self._number = number

    def add(self, values: Tensor) -> None:
        """Replace the values by their sum over the members. Raises SumFailed; the values are then
        undefined.
        """
        if self._group is None:
            return
        try:
            self._group.allreduce([values]).wait()
        except RuntimeError as error:
            self.abort()
            raise SumFailed(_sentence(error)) from error

    def abort(self) -> None:
        """End the group, so that members that wait for this one fail at once."""
        group, self._group, self._number = self._group, None, 0
        if group is not None:
            group.abort()


def _sentence(error: RuntimeError) -> str:
    """The first sentence of gloo's message, without its source line."""
    return re.sub(r"^\[[^\]]*\] ?", "", str(error)).partition(". ")[0]
