"""A connection to one cluster: a backend, its sources and the store that they feed.

All sources run in one thread with its own event loop, so that a slow UI never delays a socket and a
slow socket never delays the UI. Events are queued. The owner of the session calls `drain` on its
own clock, and only `drain` changes the store.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, Self, TypeVar

from cockpit.backends.protocol import Backend
from cockpit.format import duration
from cockpit.model.clock import server_time
from cockpit.model.event import Event, Notice, SourceHealth
from cockpit.model.text import one_line
from cockpit.sources.polling.interval import Pace
from cockpit.sources.polling.pause import pause
from cockpit.store.store import Store

T = TypeVar("T")
Listener = Callable[[Event], None]

RESTART_AFTER_S = 5.0
"""A source whose iterator broke is started again after this."""

log = logging.getLogger(__name__)


class Source(Protocol):
    """Yields events forever, reconnects automatically, and reports its health."""

    @property
    def name(self) -> str: ...

    def events(self) -> AsyncIterator[Event]: ...


class Session:
    """Use as a context manager, or call `start` and `close`.

    `sources` is called on the session's own loop, so that what they open belongs to it. Each
    listener is called with every event as it arrives, from any thread. Events and actions end the
    rest of the `pace`.
    """

    def __init__(
        self,
        backend: Backend,
        sources: Callable[[], Sequence[Source]] = tuple,
        *,
        clock: Callable[[], float] = server_time,
        pace: Pace | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.backend = backend
        self.store = Store()
        self._pace = pace
        self._listeners = (*((pace.on_event,) if pace else ()), *listeners)
        self.clock = clock
        self._reported_offset_s = 0.0
        self._make_sources = sources
        self._inbox: deque[Event] = deque()
        self._questions: deque[Callable[[Store], None]] = deque()
        self._arrived = threading.Event()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = asyncio.Event()
        self._submitting = threading.Lock()
        self._closed = False
        self._pumps: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="cockpit-sources", daemon=True)
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Stop every source and wait for them. Changes nothing on the cluster."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(self._closing.set)
        thread.join(timeout=10)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def dispatch(self, event: Event) -> None:
        """Queue an event, from any thread: a drill, a mark."""
        if self.clock is server_time and server_time.offset_s != self._reported_offset_s:
            self._reported_offset_s = server_time.offset_s
            self.dispatch(self._clock_notice())
        for listener in self._listeners:
            listener(event)
        self._inbox.append(event)
        self._arrived.set()

    def _clock_notice(self) -> Notice:
        offset_s = server_time.offset_s
        message = "the clock of this host is right again"
        if offset_s:
            text = "behind" if offset_s > 0 else "ahead of"
            message = (
                f"the clock of this host is {duration(abs(offset_s))} {text} the cluster's; "
                "times are those of the cluster"
            )
        return Notice(
            at_s=self.clock(),
            source="session",
            kind="Cluster",
            name=self.backend.ref.name,
            reason="ClockCorrected",
            message=message,
            warning=bool(offset_s),
        )

    def drain(self) -> bool:
        """Apply all queued events. Return whether there were any."""
        self._arrived.clear()
        changed = False
        while self._inbox:
            self.store.apply(self._inbox.popleft())
            changed = True
        while self._questions:
            self._questions.popleft()(self.store)
        return changed

    async def ask(self, question: Callable[[Store], T]) -> T:
        """Return what `question` reads from the store; the next `drain` calls it.

        To be awaited on the session's loop. Only the thread that drains may read the store.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def put(store: Store) -> None:
            try:
                found = question(store)
            except Exception as error:  # noqa: BLE001 - raised where it was asked
                _set_result(loop, answer, error=error)
            else:
                _set_result(loop, answer, found)

        self._questions.append(put)
        self._arrived.set()
        return await answer

    def wait(self, until: Callable[[Store], bool], timeout_s: float) -> bool:
        """Drain until the store satisfies `until`, or the time is up. Returns whether it did."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.drain()
            if until(self.store):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._arrived.wait(min(left, 0.5))

    def wait_for_change(self) -> None:
        """Block until an event has been applied."""
        while not self.drain():
            self._arrived.wait()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run an action on the session's loop, from any thread."""
        with self._submitting:
            if self._loop is None or self._closed:
                work.close()
                state = "closed" if self._closed else "not started"
                raise RuntimeError(f"the session is {state}")
            if self._pace is not None:
                self._pace.wake()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run an action and wait for it. Not from the UI."""
        return self.submit(work).result(timeout_s)

    def add(self, source: Source) -> None:
        """Start one more source, such as a job's log. A name that already runs is left alone."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._start_pump, source.name, source.events)

    def remove(self, name: str) -> None:
        """Stop a source that `add` started."""

        def stop() -> None:
            if (task := self._pumps.pop(name, None)) is not None:
                task.cancel()

        if self._loop is not None:
            self._loop.call_soon_threadsafe(stop)

    def _run(self) -> None:
        self._loop = loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            self._start_pump("backend", self.backend.watch)
            for source in self._make_sources():
                self._start_pump(source.name, source.events)
            loop.call_soon(self._ready.set)
            # Unlike loop.stop, a second call of `close` cannot stop the loop while it cleans up.
            loop.run_until_complete(self._closing.wait())
        finally:
            self._ready.set()
            with self._submitting:
                self._closed = True
            # Later submissions become tasks, and are cancelled with the others.
            loop.run_until_complete(asyncio.sleep(0))
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            loop.run_until_complete(self.backend.aclose())
            loop.run_until_complete(loop.shutdown_asyncgens())
            from cockpit.sources.http.client import close_all

            loop.run_until_complete(close_all())
            loop.close()

    def _start_pump(self, name: str, events: Callable[[], AsyncIterator[Event]]) -> None:
        assert self._loop is not None
        if name not in self._pumps:
            self._pumps[name] = self._loop.create_task(self._pump(name, events))

    async def _pump(self, name: str, events: Callable[[], AsyncIterator[Event]]) -> None:
        """Queue the events of one source; report and restart a source that raises."""
        try:
            while True:
                try:
                    async for event in events():
                        self.dispatch(event)
                    return
                except Exception as error:
                    log.exception("source %s broke", name)
                    now = self.clock()
                    why = one_line(f"{type(error).__name__}: {error}")
                    retry = now + RESTART_AFTER_S
                    self.dispatch(
                        SourceHealth(at_s=now, source=name, ok=False, error=why, retry_at_s=retry)
                    )
                    await pause(RESTART_AFTER_S)
        finally:
            if self._pumps.get(name) is asyncio.current_task():
                del self._pumps[name]


def _set_result(
    loop: asyncio.AbstractEventLoop,
    answer: asyncio.Future[T],
    found: T | None = None,
    error: Exception | None = None,
) -> None:
    """Set the result of `ask` on its loop, unless it was cancelled."""

    def resolve() -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found)  # type: ignore[arg-type]

    if not loop.is_closed():
        loop.call_soon_threadsafe(resolve)
