from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import pytest

from cockpit.backends.kuberay.api import reflector as module
from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.reflector import Health, Reflector, Snapshot
from cockpit.model.clock import server_time
from cockpit.sources.polling.backoff import Backoff
from tests.backends.kubernetes.clients import client_of
from tests.backends.kubernetes.faulty_proxy import Fault, FaultyProxy, refusal
from tests.cluster.fixtures import need_kubernetes
from tests.cluster.testbed import Testbed

DEADLINE_S = 20.0
LABEL = {"labelSelector": "test=reflector"}


class Watched:
    """The updates of a reflector, in order."""

    def __init__(self) -> None:
        self.snapshots: list[tuple[dict[str, str], bool]] = []
        self.healths: list[Health] = []
        self._more = asyncio.Event()

    @property
    def now(self) -> dict[str, str]:
        return self.snapshots[-1][0] if self.snapshots else {}

    @property
    def complete(self) -> bool:
        return bool(self.snapshots) and self.snapshots[-1][1]

    @property
    def health(self) -> Health | None:
        return self.healths[-1] if self.healths else None

    @property
    def well(self) -> bool:
        return self.health is not None and self.health.ok

    async def until(self, condition: Callable[[], bool]) -> None:
        """Checked at each update, and periodically for conditions without an update."""
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._more.wait(), 0.02)
                self._more.clear()

    async def follow(self, reflector: Reflector[str]) -> None:
        async with aclosing(reflector.updates()) as updates:  # type: ignore[type-var]
            async for update in updates:
                if isinstance(update, Snapshot):
                    self.snapshots.append((dict(update.objects), update.complete))
                else:
                    self.healths.append(update)
                self._more.set()


class Pauses(Backoff):
    """Short pauses, which are counted."""

    def __init__(self) -> None:
        super().__init__(0.01, 0.01)
        self.count = 0

    def failed(self) -> float:
        self.count += 1
        return super().failed()


def value(raw: Any) -> str:
    return str(raw["data"]["v"])


@asynccontextmanager
async def watching(
    client: KubeClient, path: str, parse: Callable[[Any], str | None] = value, **more: Any
) -> AsyncIterator[tuple[Watched, Reflector[str]]]:
    quick = Backoff(0.05, 0.2, random.Random(1))
    settings = {"params": LABEL, "coalesce_s": 0.01, "backoff": quick, **more}
    reflector = Reflector(client, path, parse, **settings)
    watched = Watched()
    following = asyncio.create_task(watched.follow(reflector))
    try:
        yield watched, reflector
        assert not following.done(), "nothing ends it but closing it"
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


class Maps:
    """ConfigMaps in a separate namespace, written as administrator and without injected faults."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client, self.namespace = client, namespace
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"

    def key(self, name: str) -> str:
        return f"{self.namespace}/{name}"

    async def make(self, name: str, v: str, **data: str) -> None:
        labels = {"test": "reflector"}
        body = {"metadata": {"name": name, "labels": labels}, "data": {"v": v, **data}}
        await self._client.create(self.path, body)

    async def change(self, name: str, v: str) -> None:
        await self._client.patch(f"{self.path}/{name}", {"data": {"v": v}}, kind="merge")

    async def drop(self, name: str) -> None:
        await self._client.delete(f"{self.path}/{name}")


@pytest.fixture
async def maps(control_plane: Testbed, client: KubeClient) -> AsyncIterator[Maps]:
    made = Maps(client, control_plane.namespace("reflector-tests"))
    yield made
    asked = {"propagationPolicy": "Background"}
    await client.delete(f"{made.path}?labelSelector=test%3Dreflector", asked)


def watch_requests(proxy: FaultyProxy) -> list[str]:
    return proxy.asked("watch=1")


def list_requests(proxy: FaultyProxy) -> list[str]:
    return [request for request in proxy.asked("configmaps?") if "watch=1" not in request]


async def test_reflector_reports_existing_objects_and_then_each_change(
    client: KubeClient, maps: Maps
) -> None:
    await maps.make("a", "1")
    async with watching(client, maps.path) as (watched, _):
        await watched.until(lambda: watched.complete)
        assert watched.now == {maps.key("a"): "1"}
        await maps.make("b", "2")
        await maps.change("a", "3")
        await watched.until(lambda: watched.now == {maps.key("a"): "3", maps.key("b"): "2"})
        await maps.drop("a")
        await watched.until(lambda: watched.now == {maps.key("b"): "2"})
        assert all(health.ok for health in watched.healths)


async def test_an_empty_list_is_reported_as_complete(client: KubeClient, maps: Maps) -> None:
    async with watching(client, maps.path) as (watched, _):
        await watched.until(lambda: watched.complete)
        assert watched.now == {}


async def test_the_first_page_is_reported_before_the_rest_is_read(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps
) -> None:
    for number in range(4):
        await maps.make(f"p{number}", "1")
    proxy.faults.append(Fault("continue=", stall_after=0))
    async with watching(faulty, maps.path, page=3) as (watched, _):
        await watched.until(lambda: len(watched.now) == 3)
        assert not watched.complete


async def test_object_that_parse_omits_is_not_kept(client: KubeClient, maps: Maps) -> None:
    def even(raw: Any) -> str | None:
        return value(raw) if int(value(raw)) % 2 == 0 else None

    await maps.make("a", "1")
    await maps.make("b", "2")
    async with watching(client, maps.path, even) as (watched, _):
        await watched.until(lambda: watched.complete)
        assert watched.now == {maps.key("b"): "2"}
        await maps.change("b", "3")
        await watched.until(lambda: watched.now == {})


async def test_an_unreadable_object_hides_no_other(client: KubeClient, maps: Maps) -> None:
    def brittle(raw: Any) -> str:
        return {"1": "one", "2": "two"}[value(raw)]

    await maps.make("a", "1")
    await maps.make("odd", "?")
    async with watching(client, maps.path, brittle) as (watched, reflector):
        await watched.until(lambda: watched.complete)
        assert watched.now == {maps.key("a"): "one"}
        assert list(reflector.skipped) == [maps.key("odd")]
        await maps.change("odd", "2")
        await watched.until(lambda: watched.now.get(maps.key("odd")) == "two")
        assert not reflector.skipped


async def test_many_changes_are_reported_together(client: KubeClient, maps: Maps) -> None:
    await maps.make("busy", "0")
    async with watching(client, maps.path, coalesce_s=0.5) as (watched, _):
        await watched.until(lambda: watched.complete)
        reported, began_s = len(watched.snapshots), time.monotonic()
        for number in range(40):
            await maps.change("busy", str(number))
        await watched.until(lambda: watched.now == {maps.key("busy"): "39"})
        assert len(watched.snapshots) - reported <= (time.monotonic() - began_s) / 0.5 + 2


async def test_at_rest_there_is_one_list_and_one_watch(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps
) -> None:
    await maps.make("a", "1")
    async with watching(faulty, maps.path, beat_s=0.05) as (watched, _):
        await watched.until(lambda: len(watched.healths) > 10)
        await maps.change("a", "2")
        await watched.until(lambda: watched.now == {maps.key("a"): "2"})
    assert (len(list_requests(proxy)), len(watch_requests(proxy))) == (1, 1)
    assert faulty.requests == 2
    assert "allowWatchBookmarks=true" in watch_requests(proxy)[0]


async def test_a_watch_cut_in_mid_line_continues_where_it_was(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps
) -> None:
    proxy.faults.append(Fault("watch=1", cut_after=600))
    async with watching(faulty, maps.path) as (watched, _):
        await watched.until(lambda: watched.complete)
        await maps.make("a", "1", filler="x" * 2000)
        await watched.until(lambda: watched.now == {maps.key("a"): "1"})
        await watched.until(lambda: watched.well)
    assert len(list_requests(proxy)) == 1, "taken up again, not listed again"
    assert len(watch_requests(proxy)) == 2


async def test_a_list_cut_in_the_middle_is_begun_again(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps
) -> None:
    for number in range(4):
        await maps.make(f"p{number}", "1")
    proxy.faults.append(Fault("continue=", cut_after=500))
    async with watching(faulty, maps.path, page=3) as (watched, _):
        await watched.until(lambda: watched.complete)
        assert len(watched.now) == 4
        sizes = [len(objects) for objects, _ in watched.snapshots]
        assert sizes == sorted(sizes), "what was shown did not vanish meanwhile"


def gone(in_stream: bool) -> bytes:
    status = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}
    if in_stream:
        return refusal(200, json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
    return refusal(410, json.dumps(status).encode())


@pytest.mark.parametrize("in_stream", [True, False])
async def test_a_version_that_is_too_old_lists_again_and_forgets_nothing_at_the_same_time(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps, in_stream: bool
) -> None:
    await maps.make("stays", "1")
    await maps.make("goes", "1")
    async with watching(faulty, maps.path) as (watched, _):
        await watched.until(lambda: watched.complete and len(watch_requests(proxy)) == 1)
        proxy.faults.append(Fault("watch=1", gone(in_stream)))
        await proxy.refuse()
        await maps.drop("goes")
        reported = len(watched.snapshots)
        await proxy.listen()
        await watched.until(lambda: watched.now == {maps.key("stays"): "1"})
        later = [objects for objects, _ in watched.snapshots[reported:]]
        assert all(maps.key("stays") in objects for objects in later)
        assert all(complete for _, complete in watched.snapshots[reported:])
        await watched.until(lambda: watched.well)
    assert len(list_requests(proxy)) == 2


async def test_a_server_that_always_reports_too_old_is_not_asked_in_a_circle(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps
) -> None:
    proxy.faults += [Fault("watch=1", gone(True)) for _ in range(1000)]
    pauses = Pauses()
    async with watching(faulty, maps.path, backoff=pauses) as (watched, _):
        await watched.until(lambda: pauses.count >= 5)
        assert len(watch_requests(proxy)) <= pauses.count + 1


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_in_a_circle(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps
) -> None:
    proxy.faults += [Fault("watch=1", refusal(200)) for _ in range(1000)]
    pauses = Pauses()
    async with watching(faulty, maps.path, backoff=pauses, beat_s=0.05) as (watched, _):
        await watched.until(lambda: pauses.count >= 5)
        assert len(watch_requests(proxy)) <= 2 * pauses.count  # no pause after a slow one


async def test_a_server_that_no_longer_exists_is_reported_and_found_again_at_once(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps
) -> None:
    await maps.make("a", "1")
    async with watching(faulty, maps.path) as (watched, _):
        await watched.until(lambda: watched.complete and len(watch_requests(proxy)) == 1)
        await proxy.refuse()
        await watched.until(lambda: not watched.well)
        assert watched.now == {maps.key("a"): "1"}, "what was known is still shown"
        await maps.change("a", "2")
        await proxy.listen()
        # OK as soon as the watch is open, not only with its first event or bookmark.
        await watched.until(lambda: watched.well)
        await watched.until(lambda: watched.now == {maps.key("a"): "2"})
    unwell = [health for health in watched.healths if not health.ok]
    assert all(health.error is not None and health.retry_at_s for health in unwell)
    assert len(list_requests(proxy)) == 1


async def test_a_busy_server_is_asked_again_when_it_reports(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps
) -> None:
    await maps.make("a", "1")
    busy = refusal(429, b"{}", "Retry-After: 0\r\n")
    proxy.faults += [Fault("configmaps?", busy), Fault("watch=1", busy)]
    async with watching(faulty, maps.path) as (watched, _):
        await watched.until(lambda: watched.complete)
        await watched.until(lambda: len(watch_requests(proxy)) == 2)
        await maps.change("a", "2")
        await watched.until(lambda: watched.now == {maps.key("a"): "2"} and watched.well)


async def test_watch_without_events_is_reconnected(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.3)
    await maps.make("a", "1")
    proxy.faults.append(Fault("watch=1", stall_after=1))
    async with watching(faulty, maps.path) as (watched, _):
        await watched.until(lambda: watched.complete)
        await maps.change("a", "2")
        await watched.until(lambda: watched.now == {maps.key("a"): "2"})
    assert len(watch_requests(proxy)) >= 2


@pytest.mark.timed
async def test_server_without_bookmarks_is_not_considered_dead(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them promises any."""
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    await maps.make("a", "1")
    async with watching(faulty, maps.path) as (watched, _):
        await watched.until(lambda: len(watch_requests(proxy)) >= 3)
        assert all(health.ok for health in watched.healths)
    assert len(list_requests(proxy)) == 1


async def test_a_watch_that_is_never_answered_is_reported(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENT_S", 0.2)
    proxy.faults.append(Fault("watch=1", stall_after=0))
    async with watching(faulty, maps.path) as (watched, _):
        await watched.until(lambda: not watched.well and watched.health is not None)
        await watched.until(lambda: watched.well)


async def test_a_bookmark_moves_the_version_on(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps
) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "77777"}}}
    proxy.faults.append(Fault("watch=1", refusal(200, json.dumps(bookmark).encode() + b"\n")))
    async with watching(faulty, maps.path) as (watched, _):
        await watched.until(lambda: len(watch_requests(proxy)) == 2)
    assert "resourceVersion=77777" in watch_requests(proxy)[1]


async def test_a_right_that_is_missing_is_reported_and_not_asked_for_often(
    control_plane: Testbed, maps: Maps
) -> None:
    client = client_of(control_plane.plane.user_kubeconfig("nobody-in-particular"))
    async with watching(client, maps.path) as (watched, _):
        await watched.until(lambda: watched.health is not None)
        assert watched.health is not None
        assert not watched.health.ok
        assert "cannot list" in str(watched.health.error)
        assert client.requests == 1
        assert watched.health.retry_at_s is not None
        assert watched.health.retry_at_s - server_time() > 0.8 * module.REFUSED_RETRY_S
    await client.aclose()


async def test_a_kind_that_is_not_installed_is_reported_as_such(client: KubeClient) -> None:
    async with watching(client, "/apis/ray.io/v1/nosuchthings") as (watched, _):
        await watched.until(lambda: watched.health is not None)
        assert watched.health is not None
        assert watched.health.missing


@pytest.mark.parametrize(
    "event", [b"[]", b"3", b'{"type": "ADDED"}', b'{"type": "ADDED", "object": {}}', b"null"]
)
async def test_an_event_that_is_none_does_not_end_it(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps, event: bytes
) -> None:
    proxy.faults.append(Fault("watch=1", refusal(200, event + b"\n")))
    async with watching(faulty, maps.path) as (watched, _):
        await watched.until(lambda: watched.complete)
        await maps.make("a", "1")
        await watched.until(lambda: watched.now == {maps.key("a"): "1"} and watched.well)


@pytest.mark.parametrize("items", ["[3]", '{"a": 1}', '[{"metadata": null}]'])
async def test_a_list_that_is_none_does_not_end_it(
    proxy: FaultyProxy, faulty: KubeClient, maps: Maps, items: str
) -> None:
    body = f'{{"metadata": {{"resourceVersion": "1"}}, "items": {items}}}'
    proxy.faults.append(Fault("configmaps?", refusal(200, body.encode())))
    async with watching(faulty, maps.path) as (watched, _):
        await watched.until(lambda: watched.complete and watched.well)


async def test_closing_leaves_no_task_and_no_connection_in_use(
    client: KubeClient, maps: Maps
) -> None:
    before = asyncio.all_tasks()
    async with watching(client, maps.path) as (watched, _):
        await watched.until(lambda: watched.complete)
    assert asyncio.all_tasks() <= before


@pytest.mark.slow
async def test_a_restart_of_the_api_server_is_survived() -> None:
    """On a separate cluster: other tests must keep theirs."""
    need_kubernetes()
    testbed = Testbed.up()
    try:
        client = client_of(testbed.kubeconfig)
        maps = Maps(client, testbed.namespace("restart"))
        await maps.make("a", "1")
        async with watching(client, maps.path) as (watched, _):
            await watched.until(lambda: watched.complete)
            await asyncio.to_thread(testbed.plane.stop_api_server, signal.SIGKILL)
            await watched.until(lambda: not watched.well)
            assert watched.now == {maps.key("a"): "1"}
            testbed.plane.start_api_server()
            await asyncio.to_thread(testbed.plane.wait_until_ready)
            await maps.change("a", "2")
            await watched.until(lambda: watched.now == {maps.key("a"): "2"} and watched.well)
        await client.aclose()
    finally:
        testbed.down()
