"""How many connections are made at the same time."""

from __future__ import annotations

import asyncio

import pytest

from cockpit.backends.ssh import fleet
from cockpit.backends.ssh.fleet import SlowStart


class Connecting:
    """Connections that begin in their order. `end` ends them."""

    def __init__(self, count: int, most: int) -> None:
        self.begun: list[int] = []
        self.all_begun = asyncio.Event()
        self._ends = [asyncio.Event() for _ in range(count)]
        turns = SlowStart(most)

        async def connect(number: int) -> None:
            async with turns.turn():
                self.begun.append(number)
                if len(self.begun) == count:
                    self.all_begun.set()
                await self._ends[number].wait()

        self.tasks = [asyncio.create_task(connect(number)) for number in range(count)]

    async def end(self, *numbers: int) -> None:
        for number in numbers:
            self._ends[number].set()
            await self.tasks[number]
        await self.settle()

    async def settle(self) -> None:
        for _ in self.tasks:
            await asyncio.sleep(0)


async def test_each_connection_that_is_made_lets_two_more_begin_up_to_the_limit() -> None:
    made = Connecting(12, most=3)
    await made.settle()
    assert made.begun == [0]
    await made.end(0)
    assert made.begun == [0, 1, 2]
    await made.end(1)
    assert made.begun == [0, 1, 2, 3, 4]
    await made.end(2, 3, 4)
    assert made.begun == [0, 1, 2, 3, 4, 5, 6, 7]
    await made.end(*range(5, 12))
    assert made.begun == [*range(12)]


async def test_connection_to_a_host_that_does_not_answer_does_not_delay_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "TURN_S", 0.01)
    made = Connecting(4, most=2)
    async with asyncio.timeout(30):
        await made.all_begun.wait()
    await made.end(*range(4))
    assert made.begun == [0, 1, 2, 3]
