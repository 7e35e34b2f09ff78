"""Blocking work in a separate thread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cockpit.sources.polling.thread import in_thread


async def test_result_and_error_come_from_the_thread() -> None:
    assert await in_thread(lambda: threading.current_thread().name, "worker") == "worker"
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0, "worker")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
async def test_work_whose_caller_was_cancelled_ends_without_an_error() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(10)
        ended.set()

    waiting = asyncio.create_task(in_thread(work, "worker"))
    await asyncio.to_thread(begun.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 10)
