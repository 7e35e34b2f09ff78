from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    Event,
    MetricsReported,
    RankSampled,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import RunState
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.telemetry import source as telemetry
from cockpit.sources.telemetry import stream as streams
from cockpit.sources.telemetry.source import READ_AT_ONCE, TAIL_LINES, TelemetrySource
from cockpit.sources.telemetry.stream import Stream
from tests.sources.fake_dashboard import HEAD, FakeDashboard, Fault, node
from training.telemetry import wire

NAME = "cockpit/telemetry-01000000.jsonl"
STREAM, FILE = "/api/v0/logs/stream", "/api/v0/logs/file"
RUN = "ab12"


def line(seq: int, body: wire.Body, t: float | None = None) -> str:
    return wire.encode(wire.Record(seq, 1000.0 + seq if t is None else t, body)) + "\n"


def tick(step: int, loss: float = 1.0) -> wire.Tick:
    steps = wire.Steps(
        rank=0, attempt=1, t=1000.0 + step, step=step, first_step=step, steps_total=step, loss=loss
    )
    return wire.Tick(run=RUN, ranks=(steps,))


def ticks(first: int, last: int) -> str:
    return "".join(line(seq, tick(seq)) for seq in range(first, last + 1))


def source(dashboard: Dashboard, idle_s: float = 30) -> TelemetrySource:
    return TelemetrySource(dashboard, find_s=0.05, idle_s=idle_s)


async def until(
    events: AsyncGenerator[Event, None], done: Callable[[Event], bool], *, limit_s: float = 20
) -> list[Event]:
    seen: list[Event] = []
    async with asyncio.timeout(limit_s):
        async for event in events:
            seen.append(event)
            if done(event):
                return seen
    raise AssertionError("the source ended")


def steps(events: Sequence[Event]) -> list[int]:
    return [
        sample.step
        for event in events
        if isinstance(event, RankSampled)
        for sample in event.samples
    ]


def at_step(step: int) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, RankSampled) and event.samples[0].step == step


def is_health(event: Event) -> bool:
    return isinstance(event, SourceHealth)


async def test_each_kind_of_record_becomes_its_event(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    worker = wire.Worker(rank=0, node_id="n", node_ip="127.0.0.11", pid=7, gpu_ids=(3,))
    bodies: list[wire.Body] = [
        wire.Run(run=RUN, name="digits", state="RUNNING", job="01000000", world_size=2),
        wire.AttemptStart(run=RUN, attempt=1, workers=(worker,)),
        tick(5, loss=math.nan),
        wire.Report(
            run=RUN, attempt=1, metrics={"loss": 0.5, "step": 90.0}, checkpoint="/store/c1"
        ),
        wire.AttemptEnd(run=RUN, attempt=1, reason="node died\nbadly"),
        wire.Run(run=RUN, name="digits", state="NEW_IN_RAY_3"),
    ]
    fake.add_job("one")
    fake.write(NAME, "".join(line(seq, body) for seq, body in enumerate(bodies, 1)))
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, is_health)
    run, start, sampled, reported, end, unknown, health = seen
    assert isinstance(run, RunSeen)
    assert (run.name, run.state, run.job_id, run.world_size, run.at_s) == (
        "digits",
        RunState.RUNNING,
        "01000000",
        2,
        1001.0,
    )
    assert isinstance(start, AttemptStarted)
    assert start.placements[0].gpu_ids == (3,)
    assert isinstance(sampled, RankSampled)
    assert sampled.samples[0].loss is not None
    assert math.isnan(sampled.samples[0].loss)
    assert isinstance(reported, MetricsReported)
    assert reported.checkpoint is not None
    assert (reported.checkpoint.step, reported.checkpoint.path) == (90, "/store/c1")
    assert isinstance(end, AttemptEnded)
    assert end.reason == "node died badly"
    assert isinstance(unknown, RunSeen)
    assert unknown.state is RunState.UNKNOWN
    assert isinstance(health, SourceHealth)
    assert (health.ok, health.absent, health.error) == (True, False, "")


async def test_no_file_is_absence_and_no_failure(dashboard: Dashboard) -> None:
    async with aclosing(source(dashboard).events()) as events:
        [health] = await until(events, is_health)
    assert isinstance(health, SourceHealth)
    assert (health.ok, health.absent) == (True, True)


async def test_health_comes_after_the_past(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 2000))
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, is_health)
    assert steps(seen) == list(range(1, 2001))


async def test_a_file_that_comes_later_is_found_and_followed(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    async with aclosing(source(dashboard).events()) as events:
        await until(events, is_health)
        fake.add_job("one")
        fake.write(NAME, ticks(1, 3))
        assert steps(await until(events, at_step(3))) == [1, 2, 3]
        fake.write(NAME, ticks(4, 4))
        assert steps(await until(events, at_step(4))) == [4]


@pytest.mark.parametrize(
    "faults",
    [
        (Fault(after_bytes=0),) * 3,
        (Fault(after_bytes=1000), Fault(after_bytes=7), Fault(after_bytes=3000)),
        (Fault(after_bytes=1000, clean=False), Fault(after_bytes=7, clean=False)),
        (Fault(status=500, text="boom"), Fault(status=502), Fault(status=429)),
    ],
    ids=["empty ends", "clean ends", "cuts", "refusals"],
)
async def test_every_record_comes_once_and_in_order_after_any_interruption(
    fake: FakeDashboard, dashboard: Dashboard, faults: tuple[Fault, ...]
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 100))
    fake.fail(STREAM, *faults)
    fake.fail(FILE, Fault(after_bytes=5000, clean=False))

    async def go_on() -> None:
        for seq in range(101, 301):
            fake.write(NAME, ticks(seq, seq))
            await asyncio.sleep(0.002)

    async with aclosing(source(dashboard).events()) as events:
        seen, _ = await asyncio.gather(until(events, at_step(300)), go_on())
    assert steps(seen) == list(range(1, 301))


async def test_a_gap_longer_than_the_tail_is_filled_from_the_whole_file(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 10))
    fake.fail(STREAM, Fault(after_bytes=0), Fault(status=503))
    last = 10 + 3 * TAIL_LINES
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, at_step(10))
        await fake.until_asked(STREAM, 1)
        fake.write(NAME, ticks(11, last))
        seen += await until(events, at_step(last))
        assert steps(seen) == list(range(1, last + 1))
        health = (await until(events, is_health))[-1]
    assert isinstance(health, SourceHealth)
    assert health.error == ""


async def test_unreadable_lines_are_skipped_counted_and_reported(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 2))
    fake.write(NAME, b"\x00\xff garbage\n" + b"[" * 100_000 + b"\n")
    fake.write(NAME, '{"v":2,"seq":3,"t":1003.0,"kind":"steps"}\n')
    fake.write(NAME, '{"v":1,"seq":4,"t":1004.0,"kind":"hologram"}\n')
    fake.write(NAME, '{"v":1,"seq":5,"t":1005.0,"kind":"steps","run":"x","ranks":7}\n')
    fake.write(NAME, ticks(6, 7) + ticks(10, 10))
    fake.fail(STREAM, *[Fault(after_bytes=10_000)] * 3)
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, is_health)
        await fake.until_asked(STREAM, 4)
        seen += await until(events, is_health)
        fake.write(NAME, ticks(11, 11))
        seen += await until(events, at_step(11))
    assert steps(seen) == [1, 2, 6, 7, 10, 11]
    health = [event for event in seen if isinstance(event, SourceHealth)][-1]
    assert health.ok
    assert "4 lines skipped" in health.error
    assert "2 records missing" in health.error


async def test_a_line_that_is_torn_by_a_killed_writer_costs_no_other(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 2) + '{"v":1,"seq":3,"t":10')
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, at_step(2))
        # The next writer ends the line and continues the numbers of the last complete record.
        fake.write(NAME, "\n" + ticks(3, 4))
        seen += await until(events, at_step(4))
    assert steps(seen) == [1, 2, 3, 4]


async def test_a_file_that_was_replaced_is_read_from_its_start(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 5))
    fake.fail(STREAM, Fault(after_bytes=len(ticks(1, 5))))
    async with aclosing(source(dashboard).events()) as events:
        await until(events, at_step(5))
        fake.files[NAME] = bytearray(
            "".join(line(seq, tick(seq + 50), t=9000.0 + seq) for seq in range(1, 4)), "utf-8"
        )
        assert steps(await until(events, at_step(53))) == [51, 52, 53]


async def test_a_job_that_is_over_is_read_once_and_not_followed(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    for number in range(20):
        fake.add_job(f"job{number}", "FAILED", ray_id=f"{number:02x}000000")
        fake.write(f"cockpit/telemetry-{number:02x}000000.jsonl", ticks(1, 3))
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, is_health)
        seen += await until(events, is_health)
    assert len(steps(seen)) == 60
    assert fake.times_asked(FILE) == 20
    assert fake.times_asked(STREAM) == 0
    assert fake.times_asked("/api/jobs/") == 1


async def test_a_job_that_ends_is_read_to_its_end_and_then_left(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 3))
    telemetry = TelemetrySource(dashboard, find_s=0.05, idle_s=0.2, jobs_fresh_s=0.05)
    async with aclosing(telemetry.events()) as events:
        await until(events, at_step(3))
        await fake.until_asked(STREAM, 1)
        fake.write(NAME, ticks(4, 4))
        fake.end_job("one")
        assert steps(await until(events, at_step(4))) == [4]
        await fake.until_asked(FILE, 2)
        asked = fake.times_asked(STREAM)
        for _ in range(10):
            await until(events, is_health)
        assert fake.times_asked(STREAM) == asked


async def test_a_driver_that_ray_no_longer_lists_is_followed_while_its_run_continues(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.write(NAME, line(1, wire.Run(run=RUN, state="RUNNING")) + ticks(2, 3))
    async with aclosing(source(dashboard).events()) as events:
        await until(events, at_step(3))
        fake.write(NAME, ticks(4, 4))
        assert steps(await until(events, at_step(4))) == [4]


@pytest.fixture
def made_streams(monkeypatch: pytest.MonkeyPatch) -> list[Stream]:
    """The streams of all sources, in the order in which they were found."""
    made: list[Stream] = []

    def make(*args: Any, **named: Any) -> Stream:
        made.append(Stream(*args, **named))
        return made[-1]

    monkeypatch.setattr(streams, "Stream", make)
    return made


async def test_a_head_that_was_replaced_is_found_and_the_old_one_forgotten(
    fake: FakeDashboard, dashboard: Dashboard, made_streams: list[Stream]
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 3))
    fake.fail(STREAM, Fault(after_bytes=500, clean=False))
    async with aclosing(source(dashboard).events()) as events:
        await until(events, at_step(3))
        fake.dead_nodes.add(HEAD)
        fake.nodes = [node(HEAD, alive=False), node("b" * 56)]
        seen = await until(events, at_step(3))
        assert steps(seen) == [1, 2, 3]  # the new head's file, by chance of the same content
        health = (await until(events, is_health))[-1]
        old, new = made_streams
        await until(events, lambda _: not old.progress._came)
        assert new.progress._came
    assert isinstance(health, SourceHealth)
    assert (health.ok, health.error) == (True, "")


async def test_a_file_that_goes_away_and_comes_back_is_read_on(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 3))
    async with aclosing(source(dashboard, idle_s=0.1).events()) as events:
        await until(events, at_step(3))
        fake.dead_nodes.add(HEAD)
        failed = (await until(events, lambda e: isinstance(e, SourceHealth) and not e.ok))[-1]
        assert isinstance(failed, SourceHealth)
        assert "exist" in failed.error
        fake.write(NAME, ticks(4, 5))
        fake.dead_nodes.clear()
        assert steps(await until(events, at_step(5))) == [4, 5]


async def test_failures_are_reported_and_end_by_themselves(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 2))
    fake.fail("/api/v0/logs", Fault(status=500, text="boom"))
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, at_step(2))
    failed = seen[0]
    assert isinstance(failed, SourceHealth)
    assert not failed.ok
    assert "boom" in failed.error
    assert failed.retry_at_s is not None


async def test_a_huge_line_is_dropped_and_not_held(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 1) + "x" * 30_000_000 + "\n" + ticks(2, 2))
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(events, at_step(2))
    assert steps(seen) == [1, 2]


async def test_closing_the_source_closes_its_streams(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(NAME, ticks(1, 1))
    async with aclosing(source(dashboard).events()) as events:
        await until(events, at_step(1))
        await fake.until_asked(STREAM, 1)
    assert all("telemetry" not in str(task.get_coro()) for task in asyncio.all_tasks())
    async with asyncio.timeout(5):
        seq = 2
        while fake.open_streams:
            fake.write(NAME, ticks(seq, seq))  # a closed connection shows at a write
            seq += 1
            await asyncio.sleep(0.01)


async def test_the_streams_of_many_finished_jobs_take_few_connections_and_little_memory(
    fake: FakeDashboard,
    dashboard: Dashboard,
    monkeypatch: pytest.MonkeyPatch,
    made_streams: list[Stream],
) -> None:
    jobs, now, most = 60, 0, 0
    for number in range(jobs):
        fake.add_job(f"job-{number}", status="SUCCEEDED", ray_id=f"{number:02d}000000")
        fake.write(f"cockpit/telemetry-{number:02d}000000.jsonl", ticks(1, 20))
    stream_log = Dashboard.stream_log

    @asynccontextmanager
    async def counted(*args: Any, **named: Any) -> AsyncGenerator[Any, None]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            async with stream_log(*args, **named) as lines:
                yield lines
        finally:
            now -= 1

    monkeypatch.setattr(Dashboard, "stream_log", counted)
    async with aclosing(source(dashboard).events()) as events:
        seen = await until(
            events, lambda event: is_health(event) and all(stream.done for stream in made_streams)
        )
    assert len(steps(seen)) == 20 * jobs
    assert most <= READ_AT_ONCE
    assert not any(stream.progress._came for stream in made_streams)


async def test_health_waits_for_the_past_while_it_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb that reads the runs takes the first health report for the end of the history."""
    monkeypatch.setattr(telemetry, "FIRST_READ_S", 0.02)
    slow = Stream("node", "01000000", 0.0)

    async def read() -> None:
        for _ in range(20):
            await asyncio.sleep(0.005)
            slow.progress.seq += 1
        slow.read.set()

    reading = asyncio.create_task(read())
    await telemetry._all_read([slow])
    assert slow.read.is_set()
    await reading


async def test_health_does_not_wait_for_a_stream_that_brings_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telemetry, "FIRST_READ_S", 0.02)
    stuck = Stream("node", "01000000", 0.0)
    async with asyncio.timeout(5):
        await telemetry._all_read([stuck])
    assert not stuck.read.is_set()
