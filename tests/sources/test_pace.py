from __future__ import annotations

import asyncio
import math
import time
from contextlib import aclosing

import pytest

from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.event import Event, JobsListed, NodesListed, PodsListed, SourceHealth
from cockpit.sources.polling import interval as pace_module
from cockpit.sources.polling.interval import Pace
from cockpit.sources.ray.cluster import RaySource
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.telemetry.source import FIND_REST_S, TelemetrySource
from tests.sources.fake_dashboard import FakeDashboard


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Turned(Pace):
    """A pace whose sleeps turn the clock instead of taking time."""

    def __init__(self, clock: Clock, rest_at_most_s: float = math.inf) -> None:
        super().__init__(clock=clock, rest_at_most_s=rest_at_most_s)
        self.turned = clock
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.turned.now_s += seconds
        await asyncio.sleep(0)


def pods(*names: str, ready: bool = True, source: str = "backend") -> PodsListed:
    listed = tuple(Pod(name, "gpu", NodeType.WORKER, PodPhase.RUNNING, ready) for name in names)
    return PodsListed(at_s=0.0, source=source, pods=listed)


def test_source_rests_a_minute_after_the_last_activity() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    assert not pace.at_rest
    clock.now_s += 60
    assert pace.at_rest
    assert (pace.pause_s(1.0, 15.0), pace.pause_s(20.0, 15.0)) == (15.0, 20.0)
    pace.wake()
    assert not pace.at_rest
    assert pace.pause_s(1.0, 15.0) == 1.0
    clock.now_s += 60
    pace.jobs_alive(True)
    clock.now_s += 3600
    assert not pace.at_rest, "a job is alive"
    pace.jobs_alive(False)
    assert not pace.at_rest, "it has just ended"


def test_pods_that_change_end_the_rest_and_those_that_do_not_leave_it() -> None:
    clock = Clock()
    pace = Pace(clock=clock)
    pace.on_event(pods("a", "b"))
    clock.now_s += 61
    pace.on_event(pods("a", "b"))
    pace.on_event(pods("a", source="elsewhere"))
    pace.on_event(SourceHealth(at_s=0.0, source="backend", ok=True))
    assert pace.at_rest
    pace.on_event(pods("a", "b", ready=False))
    assert not pace.at_rest


async def test_resting_source_wakes_immediately_from_any_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace_module, "LEAST_S", 0.01)
    pace = Pace()
    asleep = asyncio.create_task(pace.sleep(60))
    async with asyncio.timeout(30):
        while not pace._waiting:  # noqa: ASYNC110 - the shortest sleep is not over
            await asyncio.sleep(0.001)
    await asyncio.to_thread(pace.wake)
    await asyncio.wait_for(asleep, 30)


async def test_sleep_lasts_its_minimum_despite_repeated_wakes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace_module, "LEAST_S", 0.2)
    pace = Pace()
    began = time.monotonic()
    asleep = asyncio.create_task(pace.sleep(60))
    while not asleep.done():
        pace.wake()
        await asyncio.sleep(0.01)
    assert time.monotonic() - began >= 0.2


async def test_at_rest_all_sources_together_ask_six_times_a_minute(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    clock = Clock()
    pace = Turned(clock)
    ray = RaySource(dashboard, pace=pace, clock=clock, monotonic=clock)
    await until(ray, clock, 1000 + 70)
    fake.asked.clear()
    began_s = clock.now_s
    await until(ray, clock, began_s + 600)
    a_minute = len(fake.asked) / (clock.now_s - began_s) * 60
    assert a_minute <= 5.5
    assert pace.slept[-1] == RaySource.rest_s
    telemetry_a_minute = 60 / FIND_REST_S
    assert a_minute + telemetry_a_minute <= 10


async def test_nodes_and_jobs_are_listed_every_5_s_at_rest_where_5_s_is_the_longest_rest(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    clock = Clock()
    pace = Turned(clock, rest_at_most_s=5.0)
    source = RaySource(dashboard, pace=pace, clock=clock, monotonic=clock)
    await until(source, clock, 1000 + 70)
    assert pace.at_rest
    fake.asked.clear()
    seen = await until(source, clock, clock.now_s + 60)
    assert sum(isinstance(event, NodesListed) for event in seen) == pytest.approx(60 / 5, abs=1)
    assert len(fake.asked) == pytest.approx(2 * 60 / 5, abs=2)
    pace.wake()
    assert pace.pause_s(1.0, 15.0) == 1.0


async def until(source: RaySource, clock: Clock, end_s: float) -> list[Event]:
    seen: list[Event] = []
    async with aclosing(source.events()) as events:
        async for event in events:
            seen.append(event)
            if clock.now_s >= end_s:
                break
    return seen


async def test_a_source_at_rest_reports_the_time_of_its_next_poll(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    clock = Clock()
    pace = Turned(clock)
    seen = await until(RaySource(dashboard, pace=pace, clock=clock, monotonic=clock), clock, 1200)
    health = [event for event in seen if isinstance(event, SourceHealth)]
    assert health[0].retry_at_s is None
    assert health[-1].retry_at_s == health[-1].at_s + RaySource.rest_s
    assert isinstance(seen[0], NodesListed)


async def test_a_job_that_appears_ends_the_rest_for_all(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    clock = Clock()
    pace = Turned(clock)
    source = RaySource(dashboard, pace=pace, clock=clock, monotonic=clock)
    await until(source, clock, 1100)
    assert pace.at_rest
    fake.add_job("one")
    seen = await until(source, clock, clock.now_s + 1)
    assert any(isinstance(event, JobsListed) and event.jobs for event in seen)
    assert not pace.at_rest
    assert pace.slept[-1] == 1.0


async def test_telemetry_lists_files_rarely_at_rest(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    clock = Clock()
    pace = Turned(clock)
    seen = 0
    async with aclosing(TelemetrySource(dashboard, pace=pace, clock=clock).events()) as events:
        async for event in events:
            seen += isinstance(event, SourceHealth)
            if seen == 70:
                break
    assert pace.slept[0] == 1.0
    assert pace.slept[-1] == FIND_REST_S
