from __future__ import annotations

import asyncio

import pytest

from cockpit.sources.polling.shared_call import SharedCall


class Answers:
    def __init__(self) -> None:
        self.calls, self.gate = 0, asyncio.Event()

    async def ask(self) -> int:
        self.calls += 1
        number = self.calls
        await self.gate.wait()
        if number == 1:
            raise OSError("cut")
        return number


@pytest.mark.parametrize("keep", [False, True])
async def test_callers_at_the_same_time_share_a_call_and_later_ones_repeat_a_failed_one(
    keep: bool,
) -> None:
    answers = Answers()
    shared = SharedCall(answers.ask, keep=keep)
    first, second = (asyncio.create_task(shared.result()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    answers.gate.set()
    with pytest.raises(OSError, match="cut"):
        await second
    assert first.cancelled()
    assert [await shared.result(), await shared.result()] == ([2, 2] if keep else [2, 3])
    await shared.aclose()


async def test_closing_cancels_the_call() -> None:
    answers = Answers()
    shared = SharedCall(answers.ask)
    waiting = asyncio.create_task(shared.result())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await shared.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert answers.calls == 1
