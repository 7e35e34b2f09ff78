from __future__ import annotations

import asyncio
from contextlib import aclosing

from cockpit.launch.resubmit import was_lost
from cockpit.model.event import Event, JobsListed, NodesListed, SourceHealth
from cockpit.sources.ray.cluster import RaySource
from cockpit.sources.ray.dashboard import Dashboard
from tests.sources.fake_dashboard import HEAD, FakeDashboard, Fault, node


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


async def first(source: RaySource, count: int) -> list[Event]:
    seen: list[Event] = []
    async with aclosing(source.events()) as events:
        async for event in events:
            seen.append(event)
            if len(seen) == count:
                break
    return seen


async def test_a_poll_lists_nodes_and_jobs_and_then_reports_that_all_is_well(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    clock = Clock()
    events = await first(RaySource(dashboard, clock=clock, monotonic=clock, sleep=clock.sleep), 4)
    assert [type(event) for event in events] == [NodesListed, JobsListed, SourceHealth, NodesListed]
    assert events[2] == SourceHealth(at_s=1000.0, source="ray", ok=True)
    assert clock.slept == [1.0]


async def test_job_whose_drivers_node_has_died_has_failed(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("lost")
    fake.nodes = [node("b" * 56), node(HEAD, alive=False)]
    clock = Clock()
    source = RaySource(dashboard, clock=clock, monotonic=clock, sleep=clock.sleep)
    [_, listed, _] = await first(source, 3)
    assert isinstance(listed, JobsListed)
    assert was_lost(listed.jobs[0])


async def test_requests_do_not_grow_with_the_cluster(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.nodes = [node(f"{number:056x}", head=number == 0) for number in range(1000)]
    clock = Clock()
    [nodes, *_] = await first(
        RaySource(dashboard, clock=clock, monotonic=clock, sleep=clock.sleep), 3
    )
    assert isinstance(nodes, NodesListed)
    assert len(nodes.nodes) == 1000
    assert len(fake.asked) == 2


async def test_failures_are_reported_and_waited_out_ever_longer_until_it_works(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.fail("/nodes", *[Fault(status=500, text="boom")] * 8)
    clock = Clock()
    events = await first(RaySource(dashboard, clock=clock, monotonic=clock, sleep=clock.sleep), 11)
    failed = [event for event in events if isinstance(event, SourceHealth) and not event.ok]
    assert len(failed) == 8
    assert all("boom" in event.error for event in failed)
    assert all(event.retry_at_s is not None and event.retry_at_s > event.at_s for event in failed)
    for number, slept in enumerate(clock.slept[:8]):
        most = min(15.0, 0.5 * 2**number)
        assert most / 2 <= slept <= most
    assert [type(event) for event in events[8:]] == [NodesListed, JobsListed, SourceHealth]


async def test_nodes_are_listed_again_after_the_clock_was_set_back(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    clock = [10_000.0]

    async def set_back(seconds: float) -> None:
        clock[0] -= 3_600.0
        await asyncio.sleep(0)

    source = RaySource(dashboard, clock=lambda: clock[0], sleep=set_back)
    events = await first(source, 6)
    assert sum(isinstance(event, NodesListed) for event in events) == 2
