"""Whether another holder of a lease still lives is judged by what is observed here."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import Any

import pytest

from cockpit.drills.engine.lease import Timing, acquire, held, holder_of, keep, renew
from cockpit.model.error import LeaseHeldError, UnreachableError
from tests.simulated_backend import ScriptedBackend


class Leased(ScriptedBackend):
    """A lease as an API server keeps it; `bob` renews it until `bob_dies_s`."""

    renewals = 1
    owner = "bob"
    current = False
    now_s = 0.0
    bob_dies_s = 0.0
    away = False

    async def hold(self, holder: str, ttl_s: float, *, expired: str = "") -> None:
        if self.away:
            raise UnreachableError("The API server does not answer.")
        if self.owner not in ("", holder) and expired != str(self.renewals):
            raise LeaseHeldError(
                "Another drill runs.", f"Held by {self.owner}.", "",
                renewal=str(self.renewals), ttl_s=60.0, current=self.current,
            )  # fmt: skip
        self.owner = holder
        self.renewals += 1

    async def sleep(self, seconds: float) -> None:
        before_s = self.now_s
        self.now_s += seconds
        if self.owner == "bob" and before_s // 20 != self.now_s // 20:
            self.renewals += self.now_s < self.bob_dies_s

    @property
    def timing(self) -> Timing:
        return Timing(clock=lambda: self.now_s, sleep=self.sleep)


async def test_a_free_lease_is_taken_at_once() -> None:
    lease = Leased()
    lease.owner = ""
    await acquire(lease, "ana", print, lease.timing)
    assert (lease.owner, lease.now_s) == ("ana", 0.0)


async def test_a_lease_that_is_current_by_its_clock_is_refused_at_once() -> None:
    lease = Leased()
    lease.current = True
    with pytest.raises(LeaseHeldError, match="Another drill runs"):
        await acquire(lease, "ana", print, lease.timing)
    assert lease.now_s == 0.0


async def test_a_live_lease_is_not_taken_by_a_clock_that_is_ahead() -> None:
    """By this clock it ran out a while ago, and it is renewed every 20 s."""
    lease = Leased()
    lease.bob_dies_s = 1e9
    with pytest.raises(LeaseHeldError):
        await acquire(lease, "ana", print, lease.timing)
    assert lease.owner == "bob"


async def test_a_lease_that_is_not_renewed_for_its_duration_is_taken() -> None:
    lease, text = Leased(), list[str]()
    await acquire(lease, "ana", text.append, lease.timing)
    assert lease.owner == "ana"
    assert lease.now_s == 60.0
    assert text == ["waiting 60 s for a renewal of the lease. Held by bob."]


async def test_a_lease_that_is_released_while_it_is_observed_is_taken_at_once() -> None:
    lease = Leased()
    observed = lease.sleep

    async def sleep(seconds: float) -> None:
        await observed(seconds)
        lease.owner = ""

    await acquire(lease, "ana", print, Timing(clock=lambda: lease.now_s, sleep=sleep))
    assert (lease.owner, lease.now_s) == ("ana", 5.0)


async def test_an_own_lease_that_another_has_taken_is_lost() -> None:
    lease = Leased()
    observed = lease.sleep

    async def sleep(seconds: float) -> None:
        await observed(seconds)
        if lease.now_s > 100:
            lease.owner = "bob"

    lost = list[str]()
    lease.owner = "ana"
    timing = Timing(clock=lambda: lease.now_s, sleep=sleep)
    await keep(lease, "ana", print, lost.append, timing)
    assert lost == ["the lease of the cluster was lost: Held by bob."]
    assert lease.now_s == 120.0


async def test_an_own_lease_that_cannot_be_renewed_is_lost_before_others_may_take_it() -> None:
    lease, notes, lost = Leased(), list[str](), list[str]()
    lease.owner, lease.away = "ana", True
    await keep(lease, "ana", notes.append, lost.append, lease.timing)
    assert lease.now_s == 40.0 < lease.timing.duration_s
    assert "was not renewed in 40 s: The API server does not answer." in lost[0]
    assert len(notes) == 4, "every 5 s from the first failure on"


async def test_an_outage_that_is_shorter_than_the_deadline_is_only_noted() -> None:
    lease, notes, lost = Leased(), list[str](), list[str]()
    lease.owner = "ana"
    observed = lease.sleep

    async def sleep(seconds: float) -> None:
        await observed(seconds)
        lease.away = 15 < lease.now_s < 35
        if lease.now_s > 200:
            lease.owner = "bob"

    timing = Timing(clock=lambda: lease.now_s, sleep=sleep)
    await keep(lease, "ana", notes.append, lost.append, timing)
    assert len(notes) == 3
    assert lost == ["the lease of the cluster was lost: Held by bob."]


async def test_a_renewal_before_an_act_waits_for_the_api_server_until_its_deadline() -> None:
    lease = Leased()
    lease.owner, lease.away = "", True
    back_s = 15.0

    async def sleep(seconds: float) -> None:
        lease.now_s += seconds
        lease.away = lease.now_s < back_s

    timing = Timing(clock=lambda: lease.now_s, sleep=sleep)
    await renew(lease, "drill-1", timing)
    assert (lease.now_s, lease.owner) == (15.0, holder_of("drill-1", os.getpid()))
    back_s, lease.away = 1000.0, True
    with pytest.raises(UnreachableError):
        await renew(lease, "drill-1", timing)
    assert lease.now_s == 55.0


async def test_a_lease_is_released_once_the_api_server_has_restarted() -> None:
    class Restarting(Leased):
        async def release(self, holder: str) -> None:
            if self.now_s < 5.0:
                raise UnreachableError("The API server does not answer.")
            self.owner = ""

    lease, notes = Restarting(), list[str]()
    lease.owner = ""

    async def unguarded(work: Coroutine[Any, Any, None]) -> None:
        await work

    async with held(
        lease, "drill-1", guard=unguarded, on_wait=print, note=notes.append, lost=print,
        timing=lease.timing,
    ):  # fmt: skip
        assert lease.owner
    assert (lease.owner, notes) == ("", [])
