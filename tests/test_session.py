from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from email.utils import formatdate

import httpx
import pytest

from cockpit.model.clock import server_time
from cockpit.model.cluster import DashboardRoute
from cockpit.model.event import Event, Notice, SourceHealth
from cockpit.session.session import Session
from cockpit.sources.http import client
from cockpit.sources.ray.dashboard import Dashboard
from tests.simulated_backend import ScriptedBackend
from tests.sources.fake_dashboard import FakeDashboard


def notice(name: str) -> Notice:
    return Notice(at_s=1.0, source="x", kind="Pod", name=name, reason="Seen", message="")


class Scripted:
    """A source that runs a generator function; counts how often it was started."""

    def __init__(self, name: str, events: Callable[[], AsyncIterator[Event]]) -> None:
        self.name = name
        self.events = events


def test_events_reach_the_store_only_when_drained() -> None:
    gate = threading.Event()

    async def source() -> AsyncIterator[Event]:
        yield notice("a")
        gate.set()

    with Session(ScriptedBackend(), lambda: [Scripted("s", source)]) as session:
        assert gate.wait(5)
        assert not session.store.notices
        assert session.drain()
        assert [n.name for n in session.store.notices] == ["a"]
        assert not session.drain()


def test_a_source_that_breaks_reports_it_and_the_others_continue() -> None:
    async def bad() -> AsyncIterator[Event]:
        yield notice("before")
        raise ZeroDivisionError("boom")

    async def good() -> AsyncIterator[Event]:
        for number in itertools.count():  # a notice that is known is not listed again
            yield notice(f"alive-{number}")
            await asyncio.sleep(0.01)

    sources = [Scripted("bad", bad), Scripted("good", good)]
    with Session(ScriptedBackend(), lambda: sources) as session:
        assert session.wait(lambda store: "bad" in store.sources, 60)
        state = session.store.sources["bad"]
        assert not state.ok
        assert state.error == "ZeroDivisionError: boom"
        assert state.retry_at_s is not None
        last = session.store.notices[-1]
        assert session.wait(lambda store: store.notices[-1] != last, 60)


def test_closing_ends_the_sources_and_their_clean_up_runs() -> None:
    ended = threading.Event()

    async def endless() -> AsyncIterator[Event]:
        try:
            while True:
                yield notice("x")
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    session = Session(ScriptedBackend(), lambda: [Scripted("s", endless)])
    session.start()
    assert session.wait(lambda store: bool(store.notices), 60)
    session.close()
    assert ended.wait(5)
    session.close()


def test_a_source_can_be_added_and_removed_while_it_runs() -> None:
    ended = threading.Event()

    async def log() -> AsyncIterator[Event]:
        try:
            yield notice("line")
            await asyncio.Event().wait()
        finally:
            ended.set()

    with Session(ScriptedBackend()) as session:
        session.add(Scripted("log", log))
        session.add(Scripted("log", log))
        assert session.wait(lambda store: len(store.notices) == 1, 60)
        session.remove("log")
        assert ended.wait(5)
        assert len(session.store.notices) == 1


def test_a_source_that_has_ended_can_be_added_again() -> None:
    async def log() -> AsyncIterator[Event]:
        yield notice(str(next(numbers)))

    numbers = itertools.count()
    with Session(ScriptedBackend()) as session:
        session.add(Scripted("log", log))
        assert session.wait(lambda store: len(store.notices) == 1, 60)
        session.add(Scripted("log", log))
        assert session.wait(lambda store: len(store.notices) == 2, 60)


def test_connections_of_a_session_are_closed_with_its_loop() -> None:
    async def source() -> AsyncIterator[Event]:
        async with FakeDashboard().serve() as fake:
            await Dashboard(fake.route).nodes()
            yield notice("a")
            await asyncio.Event().wait()

    with Session(ScriptedBackend(), lambda: [Scripted("s", source)]) as session:
        assert session.wait(lambda store: bool(store.notices), 60)
        assert session._loop in client._kept
    assert session._loop not in client._kept


def test_an_action_runs_on_the_loop_of_the_session_and_its_error_comes_back() -> None:
    async def where() -> str:
        return threading.current_thread().name

    async def fails() -> None:
        raise ValueError("no")

    with Session(ScriptedBackend()) as session:
        assert session.call(where(), 60) == "cockpit-sources"
        with pytest.raises(ValueError, match="no"):
            session.call(fails(), 60)


def test_waiting_gives_up_when_the_time_is_over() -> None:
    with Session(ScriptedBackend()) as session:
        assert not session.wait(lambda store: bool(store.notices), 0.05)
        session.dispatch(notice("by hand"))
        assert session.wait(lambda store: bool(store.notices), 60)


def test_work_submitted_to_a_closing_or_closed_session_is_closed() -> None:
    """A coroutine that never starts would warn that it was never awaited."""
    session = Session(ScriptedBackend())
    session.start()
    loop = session._loop
    assert loop is not None

    async def work() -> None:
        await asyncio.sleep(60)

    late = work()
    submitted = list[Future[None]]()

    def submit_while_closing() -> None:
        session._closing.set()
        submitted.append(session.submit(late))

    loop.call_soon_threadsafe(submit_while_closing)
    session.close()
    session.close()
    assert submitted[0].done()
    assert inspect.getcoroutinestate(late) == inspect.CORO_CLOSED
    refused = work()
    with pytest.raises(RuntimeError, match="the session is closed"):
        session.submit(refused)
    assert inspect.getcoroutinestate(refused) == inspect.CORO_CLOSED


async def test_a_clock_that_differs_from_the_clusters_is_corrected_and_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        date = formatdate(time.time() - 3600.0, usegmt=True)
        return httpx.Response(200, json=[], headers={"Date": date})

    monkeypatch.setattr(server_time, "offset_s", 0.0)
    session = Session(ScriptedBackend())
    async with Dashboard(
        DashboardRoute("http://ray"), transport=httpx.MockTransport(answer)
    ) as dashboard:
        await dashboard.jobs()
    assert session.clock() == pytest.approx(time.time() - 3600.0, abs=2.0)
    for _ in range(2):
        session.dispatch(SourceHealth(at_s=session.clock(), source="ray", ok=True))
    session.drain()
    (notice,) = session.store.notices
    assert notice.message == (
        "the clock of this host is 1 h 00 m ahead of the cluster's; times are those of the cluster"
    )
