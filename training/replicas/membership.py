"""Which replicas take part in a step, and whether the step is committed. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Member:
    """A connected replica."""

    replica: int
    address: str
    """Where others fetch its state: `host:port`."""
    connection: int
    """Unique; a replica that was started again has another one."""


@dataclass(frozen=True, slots=True)
class Heal:
    """A replica receives the state of another one."""

    replica: int
    source: int
    address: str


@dataclass(frozen=True, slots=True)
class Quorum:
    """The replicas of the next step."""

    number: int
    """Increases whenever the process group of the members has to be formed again."""
    step: int
    """The last committed step; a new quorum starts at that of the first member's checkpoint."""
    rounds: tuple[tuple[int, ...], ...]
    """The members of each try of the next step, the current one last."""
    heals: tuple[Heal, ...] = ()
    """Replicas that need the state after `step` before they take part."""

    @property
    def members(self) -> tuple[int, ...]:
        return self.rounds[-1]

    @property
    def first(self) -> int:
        """The first member that has the state: it evaluates, and writes the checkpoints."""
        healed = {heal.replica for heal in self.heals}
        return next(member for member in self.members if member not in healed)


NONE = Quorum(0, 0, ((),))
"""Before the first one is formed."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to a vote, and to a replica that has joined."""

    committed: bool
    quorum: Quorum
    result: Mapping[str, Any] | None = None
    """Of the run, when it is finished."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A member of the current quorum is lost: its process group will not complete."""

    number: int
    """The quorum."""
    replica: int


class Outlet(Protocol):
    """The connections to the replicas."""

    def send(self, connection: int, message: Decision | Lost) -> None: ...

    def close(self, connection: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _Vote:
    step: int
    ok: bool
    final: bool
    result: Mapping[str, Any] | None


class Membership:
    """Not thread-safe.

    A quorum is formed when all replicas have connected. From then on it loses members whenever
    their connection ends, and gains those that wait whenever a step is committed. A step is
    committed if all members that are left have the sum of its gradients: one that died after it had
    sent its part is not needed. Otherwise, those that are left try again.
    """

    def __init__(
        self,
        replicas: int,
        outlet: Outlet,
        patience_s: float,
        on_change: Callable[[Quorum], None] = lambda quorum: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience_s`: how long a member may vote later than another one."""
        self._replicas, self._outlet, self._patience_s = replicas, outlet, patience_s
        self._on_change, self._clock = on_change, clock
        self._members: dict[int, Member] = {}
        """By connection: those of the quorum that are left."""
        self._waiting: dict[int, Member] = {}
        self._quorum: Quorum | None = None
        self._formed: frozenset[int] = frozenset()
        """The connections of the quorum, those that were lost since included."""
        self._votes: dict[int, _Vote] = {}
        self._voted_s = 0.0
        """When the first of the votes arrived."""
        self._number = 0
        self._result: Mapping[str, Any] | None = None

    @property
    def quorum(self) -> Quorum | None:
        return self._quorum

    def join(self, member: Member) -> None:
        """The replica takes part after the next committed step."""
        for old in [*self._members.values(), *self._waiting.values()]:
            if old.replica == member.replica:  # the end of its connection has not arrived
                self._outlet.close(old.connection)
                self.leave(old.connection)
        if self._result is not None:
            self._outlet.send(member.connection, Decision(True, self._quorum or NONE, self._result))
            return
        self._waiting[member.connection] = member
        self._form()

    def refuse(self, connection: int, result: Mapping[str, Any]) -> None:
        """A replica cannot train. If there is no quorum yet, that is the result of the run: the
        others would wait for it. Otherwise it has no effect on them.
        """
        if self._quorum is None:
            self._result = self._result or result
            self._dismiss()
        self._outlet.send(connection, Decision(True, self._quorum or NONE, self._result))

    def leave(self, connection: int) -> None:
        """The connection has ended."""
        self._waiting.pop(connection, None)
        gone = self._members.pop(connection, None)
        if gone is None or self._quorum is None:
            return
        self._votes.pop(connection, None)
        for left in self._members:
            self._outlet.send(left, Lost(self._quorum.number, gone.replica))
        if not self._members and self._result is None:
            self._quorum = None
            self._form()
        self._decide()

    def vote(
        self,
        connection: int,
        number: int,
        step: int,
        ok: bool,
        final: bool = False,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        """`ok`: the member has the sum of the gradients of `step`. `final`: it has no further step,
        and waits for the result of the run, which one of the members has.
        """
        if connection not in self._members or self._quorum is None:
            return
        if not self._votes:
            self._voted_s = self._clock()
        current = number == self._quorum.number
        self._votes[connection] = _Vote(step, ok and current, final, result)
        self._decide()

    def excuse(self, stopped_s: float) -> None:
        """Wait longer by the time for which the server was stopped: votes that arrived in it have
        not been read yet.
        """
        self._voted_s = min(self._voted_s + stopped_s, self._clock())

    def expire(self) -> None:
        """Remove members that have not voted for too long after another one: they are frozen, or
        their host is lost. Call it from time to time.
        """
        if not self._votes or self._clock() - self._voted_s < self._patience_s:
            return
        if any(vote.final for vote in self._votes.values()):
            return  # one of the members evaluates the model
        for late in [at for at in self._members if at not in self._votes]:
            self._outlet.close(late)
            self.leave(late)

    def _form(self) -> None:
        """All replicas get the state of the first, which may read a checkpoint."""
        if self._quorum is not None or len(self._waiting) < self._replicas:
            return
        self._members, self._waiting = self._waiting, {}
        first, *others = _in_order(self._members.values())
        heals = tuple(Heal(other.replica, first.replica, first.address) for other in others)
        self._next(0, (_replicas([first, *others]),), heals)
        self._send(committed=False)

    def _decide(self) -> None:
        if self._quorum is None or not self._members or len(self._votes) < len(self._members):
            return
        votes, self._votes = [self._votes[at] for at in self._members], {}
        committed = all(vote.ok for vote in votes)
        left = _in_order(self._members.values())
        if not committed:
            replicas = _replicas(left)
            self._next(self._quorum.step, (*self._quorum.rounds, replicas))
            self._send(committed=False)
            return
        self._result = next((vote.result for vote in votes if vote.result is not None), None)
        step = max(vote.step for vote in votes)
        if self._result is not None or not (self._waiting or len(left) < len(self._formed)):
            members = self._quorum.members
            if len(left) == len(members):
                self._quorum = Quorum(self._quorum.number, step, (members,))
            self._send(committed=True)
            if self._result is not None:
                self._dismiss()
            return
        joined, self._waiting = self._waiting, {}
        heals = tuple(
            Heal(new.replica, source.replica, source.address)
            for at, new in enumerate(_in_order(joined.values()))
            for source in [left[at % len(left)]]
        )
        self._members |= joined
        together = _replicas(_in_order(self._members.values()))
        self._next(step, (together,), heals)
        self._send(committed=True)

    def _dismiss(self) -> None:
        """The run is over: those that wait receive its result."""
        for waiting in self._waiting:
            self._outlet.send(waiting, Decision(True, self._quorum or NONE, self._result))
        self._waiting.clear()

    def _next(
        self, step: int, rounds: tuple[tuple[int, ...], ...], heals: tuple[Heal, ...] = ()
    ) -> None:
        self._number += 1
        self._quorum = Quorum(self._number, step, rounds, heals)
        self._formed = frozenset(self._members)
        self._on_change(self._quorum)

    def _send(self, *, committed: bool) -> None:
        assert self._quorum is not None
        for member in self._members:
            self._outlet.send(member, Decision(committed, self._quorum, self._result))


def _in_order(members: Iterable[Member]) -> list[Member]:
    return sorted(members, key=lambda member: member.replica)


def _replicas(members: Iterable[Member]) -> tuple[int, ...]:
    return tuple(member.replica for member in members)
