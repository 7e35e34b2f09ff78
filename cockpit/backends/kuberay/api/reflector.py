"""List and watch one kind of object.

The list is read in pages and each is emitted at once. Then a watch with bookmarks continues from
there, and is resumed after each interruption. At rest that is one request in five to ten minutes
for any number of objects. Only the result of `parse` is kept for each object.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from msgspec import Struct

from cockpit.backends.kuberay.api.client import PAGE, KubeClient
from cockpit.backends.kuberay.api.error_message import KubeError, NoDataError, not_kubernetes
from cockpit.backends.kuberay.api.fields import UNUSABLE
from cockpit.model.clock import server_time
from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.model.text import one_line
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.pause import end_if_cancelled, pause

T = TypeVar("T")

SILENT_S = 150.0
"""API servers send a bookmark about once a minute, even without changes, but do not guarantee it: a
watch without data for longer is opened again, and not reported as failed."""
WATCH_S = (300, 600)
"""The requested duration of a watch: random, so that clients do not reconnect at once."""
REFUSED_RETRY_S = 60.0
"""A missing permission or kind is not fixed by frequent retries."""
COALESCE_S = 0.1


class Snapshot(Struct, Generic[T], frozen=True):
    """All that is known now; the mapping is the reflector's own and must not be changed."""

    objects: Mapping[str, T]
    """By `namespace/name`."""
    complete: bool
    """False until the first list is complete."""


class Health(Struct, frozen=True):
    """The state of the watch."""

    ok: bool
    error: CockpitError | None = None
    retry_at_s: float | None = None
    missing: bool = False
    """The kind is not there: its CRD is not installed."""


class Reflector(Generic[T]):
    """List and watch objects.

    `updates` yields a Snapshot after each page of the first list, then at most one in `coalesce_s`,
    and a Health whenever that changes. It ends when closed. `parse` returns None for objects to
    skip. With `beat_s` an OK Health is repeated at that interval: the watch is open, and the kernel
    keeps its socket alive.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        parse: Callable[[Any], T | None],
        *,
        params: Mapping[str, str] | None = None,
        page: int = PAGE,
        coalesce_s: float = COALESCE_S,
        beat_s: float | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._client, self._path, self._parse = client, path, parse
        self._params = dict(params or {})
        self._page, self._coalesce_s = page, coalesce_s
        self._beat_s = beat_s
        self._backoff = backoff or Backoff()
        self._objects: dict[str, T] = {}
        self._skipped: dict[str, str] = {}
        self._version = ""
        self._complete = False
        self._open = False
        self._news: asyncio.Event = asyncio.Event()
        self._health: Health | None = None

    async def updates(self) -> AsyncIterator[Snapshot[T] | Health]:
        following = asyncio.create_task(self._follow())
        reported: Health | None = None
        try:
            while True:
                news = await self._has_news()
                if news and (self._objects or self._complete):
                    yield Snapshot(self._objects, self._complete)
                if self._health is not None and (self._health is not reported or self._health.ok):
                    reported = self._health
                    yield reported
                if following.done():
                    await following  # a bug in cockpit: report it
                    return
                await asyncio.sleep(self._coalesce_s)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _has_news(self) -> bool:
        """Wait for changes; return False when only `beat_s` has passed."""
        try:
            # Not `wait_for`: until Python 3.12 it hides a cancellation that comes with news.
            async with asyncio.timeout(self._beat_s):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    async def _follow(self) -> None:
        try:
            while True:
                try:
                    if not self._version:
                        await self._list()
                    await self._watch()
                except KubeError as error:
                    if error.status != 410:
                        await self._rest(error)
                        continue
                    # Too old: list again, the old list stays until then. Not in a circle.
                    self._version = ""
                    await pause(self._backoff.failed())
                except CockpitError as error:
                    await self._rest(error)
        finally:
            self._news.set()

    async def _rest(self, error: CockpitError) -> None:
        missing = isinstance(error, KubeError) and error.status == 404
        slow = missing or isinstance(error, NotAllowedError)
        wait_s = REFUSED_RETRY_S * random.uniform(0.9, 1.1) if slow else self._backoff.failed()
        self._set_health(Health(False, error, server_time() + wait_s, missing))
        await pause(wait_s)

    async def _list(self) -> None:
        found: dict[str, T] = {}
        # The first list is shown page by page; a later or repeated one when it is complete.
        shown = self._objects or found
        self._objects = shown
        version = ""
        pages = self._client.pages(self._path, self._params, limit=self._page)
        async with aclosing(pages) as listed:
            async for page in listed:
                try:
                    for raw in page.items:
                        self._take(found, raw)
                except (KeyError, TypeError, AttributeError) as error:
                    raise not_kubernetes(self._path) from error
                version = version or page.resource_version
                if shown is found and page.more:
                    self._news.set()
        self._objects, self._version, self._complete = found, version, True
        self._is_well()
        self._news.set()

    async def _watch(self) -> None:
        query = {
            **self._params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(random.randint(*WATCH_S)),
        }
        begun = time.monotonic()
        self._open = False
        lines = self._client.lines(self._path, query, idle_s=SILENT_S, opened=self._opened)
        try:
            async with aclosing(lines) as followed:
                async for line in followed:
                    self._read(line)
        except NoDataError:
            if not self._open:
                raise
            end_if_cancelled()
            return  # as good as ended: taken up again, and reported only if that fails
        if time.monotonic() - begun < 1.0:
            # A server that ends each watch at once must not be polled in a tight loop.
            await pause(self._backoff.failed())

    def _opened(self) -> None:
        self._open = True
        self._is_well()

    def _read(self, line: bytes) -> None:
        try:
            event = loads(line)
            self._apply(event["type"], event["object"])
        except UNUSABLE as error:
            raise not_kubernetes(self._path) from error
        self._backoff.worked()  # here only: a watch that is refused later has opened too

    def _apply(self, kind: str, raw: Any) -> None:
        if kind == "ERROR":
            status = int(raw.get("code") or 500)
            message = str(raw.get("message") or "the watch failed")
            raise KubeError(message, status=status, reason=str(raw.get("reason") or ""))
        if kind == "DELETED":
            self._objects.pop(_key(raw), None)
            self._skipped.pop(_key(raw), None)
            self._news.set()
        elif kind != "BOOKMARK":
            self._take(self._objects, raw)
            self._news.set()
        self._version = str(raw["metadata"]["resourceVersion"])

    def _take(self, into: dict[str, T], raw: Any) -> None:
        key = _key(raw)
        self._skipped.pop(key, None)
        try:
            parsed = self._parse(raw)
        except UNUSABLE as error:
            # One object that is made like no other must not hide the rest.
            self._skipped[key] = one_line(f"{type(error).__name__}: {error}")
            parsed = None
        if parsed is None:
            into.pop(key, None)
        else:
            into[key] = parsed

    @property
    def skipped(self) -> Mapping[str, str]:
        """Objects, by `namespace/name`, that `parse` could not read, and why."""
        return self._skipped

    def _is_well(self) -> None:
        if self._health is None or not self._health.ok:
            self._set_health(Health(True))

    def _set_health(self, health: Health) -> None:
        self._health = health
        self._news.set()


def _key(raw: Any) -> str:
    meta = raw["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"
