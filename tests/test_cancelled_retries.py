"""Every retry loop ends with its task, also if a request hides the cancellation behind an error.

A request that fails while it is cancelled raises its own error, such as httpx's; a loop that
retries it would continue forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cockpit.backends.address import AddressBackend
from cockpit.backends.kuberay.api.client import Page
from cockpit.backends.kuberay.api.error_message import NoDataError
from cockpit.backends.kuberay.api.reflector import Reflector
from cockpit.backends.kuberay.waiting.watch import QueueWatch
from cockpit.backends.run_log import RunLogSource
from cockpit.drills.engine import lease
from cockpit.drills.engine.abort import Abort
from cockpit.drills.plan.plan import DrillPlan, ProbeSpec
from cockpit.drills.probes.probe_runner import ProbeRunner
from cockpit.launch.resubmit import submit_and_resubmit
from cockpit.launch.submission import bundled_spec
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import UnreachableError
from cockpit.model.event import Event
from cockpit.session.session import Session
from cockpit.sources.polling import interval
from cockpit.sources.polling.source import PollingSource
from cockpit.sources.ray.log_follower import Follower, LogFile
from cockpit.sources.telemetry.source import TelemetrySource

REF = ClusterRef("kuberay", "demo", "ml", "admin")


class Hiding:
    """Every request waits forever, and turns its cancellation into `error` until `honest`."""

    def __init__(self, error: Callable[[], Exception] = lambda: UnreachableError("cut")) -> None:
        self._error, self.requests, self.honest = error, 0, False
        self.asked = asyncio.Event()

    async def request(self, *_: object, **__: object) -> Any:
        self.requests += 1
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.honest:
                raise
            raise self._error() from None

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return self.request


class HidingSource(PollingSource):
    name = "hiding"

    def __init__(self, hiding: Hiding) -> None:
        super().__init__(poll_s=0.01)
        self._hiding = hiding

    async def poll(self) -> AsyncGenerator[Event, None]:
        yield await self._hiding.request()


async def consume(events: AsyncIterator[object]) -> None:
    async for _ in events:
        pass


def polling_source(hiding: Hiding) -> Awaitable[object]:
    return consume(HidingSource(hiding).events())


def pump_of_session(hiding: Hiding) -> Awaitable[object]:
    async def broken() -> AsyncGenerator[Event, None]:
        hiding._error = ValueError
        yield await hiding.request()

    return Session(cast(Any, hiding))._pump("broken", broken)


def search_for_streams(hiding: Hiding) -> Awaitable[object]:
    return TelemetrySource(cast(Any, hiding))._find(asyncio.Queue())


def followed_log(hiding: Hiding) -> Awaitable[object]:
    return consume(Follower(cast(Any, hiding), hiding.request).batches())


def followed_log_cut_in_a_stream(hiding: Hiding) -> Awaitable[object]:
    async def locate() -> LogFile:
        return LogFile("node", "driver.log", over=False)

    @asynccontextmanager
    async def stream_log(*_: object, **__: object) -> AsyncIterator[object]:
        yield await hiding.request()

    dashboard = cast(Any, SimpleNamespace(stream_log=stream_log))
    return consume(Follower(dashboard, locate).batches())


def all_logs_of_a_run(hiding: Hiding) -> Awaitable[object]:
    backend = cast(Any, SimpleNamespace(dashboard=None, ref=REF))
    return consume(RunLogSource(backend, "", hiding.request).events())


def dashboard_address(hiding: Hiding) -> Awaitable[object]:
    backend = AddressBackend("http://127.0.0.1:1")
    backend.dashboard = hiding.request  # type: ignore[method-assign]
    return consume(backend.watch())


def listed_objects(hiding: Hiding) -> Awaitable[object]:
    async def pages(*_: object, **__: object) -> AsyncGenerator[Page, None]:
        yield await hiding.request()

    return Reflector(cast(Any, SimpleNamespace(pages=pages)), "/pods", lambda raw: raw)._follow()


def watched_objects(hiding: Hiding) -> Awaitable[object]:
    hiding._error = lambda: NoDataError("silent")

    async def pages(*_: object, **__: object) -> AsyncGenerator[Page, None]:
        yield Page([], "1", more=False)

    async def lines(
        *_: object, opened: Callable[[], None], **__: object
    ) -> AsyncGenerator[bytes, None]:
        opened()
        yield await hiding.request()

    client = cast(Any, SimpleNamespace(pages=pages, lines=lines))
    return Reflector(client, "/pods", lambda raw: raw)._follow()


def watch_of_queues(hiding: Hiding) -> Awaitable[object]:
    return QueueWatch(cast(Any, hiding), REF, lambda _: None).run()


def resubmitted_job(hiding: Hiding) -> Awaitable[object]:
    spec = bundled_spec("ddp", {})
    return submit_and_resubmit(cast(Any, hiding), spec, 1, lambda _: None)


def kept_lease(hiding: Hiding) -> Awaitable[object]:
    timing = lease.Timing(renew_s=0.0, retry_s=0.01)
    backend = cast(Any, SimpleNamespace(hold=hiding.request))
    return lease.keep(backend, "us", lambda _: None, lambda _: None, timing)


def abort_conditions(hiding: Hiding) -> Awaitable[object]:
    async def reason() -> str:
        with suppress(UnreachableError):  # an unavailable probe aborts nothing
            await hiding.request()
        return ""

    abort = Abort(reason, 0.01)
    abort.armed = True
    return abort._watch()


def probes_after_a_drill(hiding: Hiding) -> Awaitable[object]:
    plan = DrillPlan("one", (), hypothesis=(ProbeSpec("goodput"),))
    log = cast(Any, SimpleNamespace(drills=(), readings={}, probed=lambda _: None))
    context = cast(Any, SimpleNamespace(clock=lambda: 0.0))
    return ProbeRunner(context, cast(Any, hiding), plan, log).holds_again()


LOOPS = [
    polling_source,
    pump_of_session,
    search_for_streams,
    followed_log,
    followed_log_cut_in_a_stream,
    all_logs_of_a_run,
    dashboard_address,
    listed_objects,
    watched_objects,
    watch_of_queues,
    resubmitted_job,
    kept_lease,
    abort_conditions,
    probes_after_a_drill,
]


@pytest.mark.parametrize("loop", LOOPS)
async def test_retry_loop_ends_though_its_request_hides_the_cancellation(
    loop: Callable[[Hiding], Awaitable[object]],
) -> None:
    hiding = Hiding()
    task = asyncio.ensure_future(loop(hiding))
    await asyncio.wait_for(hiding.asked.wait(), 5.0)
    task.cancel()
    try:
        await asyncio.wait({task}, timeout=1.0)
        assert task.cancelled(), "it continues"
        assert hiding.requests == 1
    finally:
        hiding.honest = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("ticks", range(4))
@pytest.mark.parametrize("waits", ["for objects", "for a poll"])
async def test_cancellation_ends_a_wait_whose_news_comes_at_the_same_time(
    waits: str, ticks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.wait_for` of Python 3.11 returns the news then, and the task continues."""
    monkeypatch.setattr(interval, "LEAST_S", 0.0)
    reflector = Reflector(cast(Any, None), "/pods", lambda raw: raw, beat_s=60.0)
    pace = interval.Pace()
    task = asyncio.ensure_future(
        reflector._has_news() if waits == "for objects" else pace.sleep(60.0)
    )
    for _ in range(5):
        await asyncio.sleep(0)
    reflector._news.set()
    pace.wake()
    for _ in range(ticks):
        await asyncio.sleep(0)
    had_ended = task.done()
    task.cancel()
    await asyncio.wait({task}, timeout=1.0)
    assert had_ended or task.cancelled()
