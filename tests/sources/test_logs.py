from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from cockpit.model.event import LogLines, SourceHealth
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import MissingError
from cockpit.sources.ray.log_follower import LINE_LIMIT_BYTES, Follower, LogFile, Trouble
from cockpit.sources.ray.logs import follow_job_log, follow_node_log, job_log, job_log_source
from tests.sources.fake_dashboard import HEAD, FakeDashboard, Fault

LOG = "job-driver-one.log"
STREAM, FILE = "/api/v0/logs/stream", "/api/v0/logs/file"
POLL_S = 0.05


def follower(
    dashboard: Dashboard, *, tail_lines: int | None = None, idle_s: float = 30
) -> Follower:
    return Follower(
        dashboard,
        job_log(dashboard, "one"),
        tail_lines=tail_lines,
        poll_s=POLL_S,
        idle_s=idle_s,
        backoff=Backoff(0.01, 0.05),
    )


async def lines_of(source: Follower) -> tuple[list[str], list[Trouble]]:
    lines: list[str] = []
    troubles: list[Trouble] = []
    async with asyncio.timeout(20), aclosing(source.batches()) as batches:
        async for batch in batches:
            if isinstance(batch, Trouble):
                troubles.append(batch)
            else:
                lines.extend(batch)
    return lines, troubles


def numbered(first: int, last: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, last + 1))


async def until(reported: AsyncIterator[str], line: str) -> list[str]:
    seen: list[str] = []
    async for seen_line in reported:
        seen.append(seen_line)
        if seen_line == line:
            return seen
    raise AssertionError(f"no {line!r} in {seen[-3:]}")


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (Fault(after_bytes=0),),
        (Fault(after_bytes=10_003), Fault(after_bytes=1), Fault(after_bytes=30_000)),
        (Fault(after_bytes=10_003, clean=False), Fault(after_bytes=3, clean=False)),
        (Fault(status=500, text="boom"), Fault(status=502), Fault(status=429)),
        (Fault(wait_s=0.2),),
    ],
    ids=["nothing", "empty end", "clean ends", "cuts", "refusals", "slow"],
)
async def test_every_line_comes_once_and_in_order_after_any_interruption(
    fake: FakeDashboard, dashboard: Dashboard, faults: tuple[Fault, ...]
) -> None:
    fake.add_job("one")
    fake.write(LOG, numbered(1, 3000))
    fake.fail(STREAM, *faults)

    async def go_on() -> None:
        for number in range(3001, 5001, 100):
            fake.write(LOG, numbered(number, number + 99))
            await asyncio.sleep(0.01)
        fake.write(LOG, "the end, without a newline")
        fake.end_job("one")

    (lines, _), _ = await asyncio.gather(lines_of(follower(dashboard)), go_on())
    assert lines == [*numbered(1, 5000).splitlines(), "the end, without a newline"]


async def test_the_last_reading_is_resumed_too(fake: FakeDashboard, dashboard: Dashboard) -> None:
    fake.add_job("one", "SUCCEEDED")
    fake.write(LOG, numbered(1, 100))
    fake.fail(FILE, Fault(after_bytes=333, clean=False), Fault(status=500, text="boom"))
    lines, troubles = await lines_of(follower(dashboard))
    assert lines == numbered(1, 100).splitlines()
    assert len(troubles) == 2


async def test_a_tail_starts_at_the_end_and_continues_exactly(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(LOG, numbered(1, 100) + "torn ")
    fake.fail(STREAM, Fault(after_bytes=950))
    reported = follow_job_log(dashboard, "one", tail_lines=3, poll_s=POLL_S)
    async with asyncio.timeout(10), aclosing(reported):
        assert await until(reported, "line 100") == ["line 98", "line 99", "line 100"]
        fake.write(LOG, "line\n" + numbered(101, 102))
        fake.end_job("one")
        assert [line async for line in reported] == ["torn line", "line 101", "line 102"]


async def test_without_follow_it_ends_at_the_present_end(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(LOG, numbered(1, 5) + "half")
    reported = follow_job_log(dashboard, "one", follow=False)
    assert [line async for line in reported] == [*numbered(1, 5).splitlines(), "half"]


async def test_a_log_that_is_not_there_yet_is_waited_for(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one", "PENDING")
    fake.jobs[0]["driver_node_id"] = None

    async def start() -> None:
        await fake.until_asked("/api/jobs/", 2)
        fake.jobs[0] |= {"driver_node_id": HEAD, "status": "RUNNING"}
        await fake.until_asked(STREAM, 2)
        fake.write(LOG, "hello\n")
        fake.end_job("one")

    (lines, troubles), _ = await asyncio.gather(lines_of(follower(dashboard)), start())
    assert (lines, troubles) == (["hello"], [])


async def test_a_job_that_does_not_exist_is_an_error(dashboard: Dashboard) -> None:
    with pytest.raises(MissingError):
        await lines_of(follower(dashboard))


async def test_log_of_a_job_on_a_deleted_node_is_reported_as_deleted(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one", "FAILED")
    with pytest.raises(MissingError, match="not there any more"):
        await lines_of(follower(dashboard))


async def test_a_job_that_never_had_a_driver_has_an_empty_log(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one", "FAILED")
    fake.jobs[0]["driver_node_id"] = None
    assert await lines_of(follower(dashboard)) == ([], [])


async def test_stream_without_data_is_reopened_and_nothing_is_shown_twice(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(LOG, numbered(1, 10))

    async def go_on() -> None:
        await fake.until_asked(STREAM, 3)
        fake.write(LOG, numbered(11, 12))
        fake.end_job("one")

    (lines, _), _ = await asyncio.gather(lines_of(follower(dashboard, idle_s=0.1)), go_on())
    assert lines == numbered(1, 12).splitlines()


async def test_a_file_that_was_replaced_is_read_from_its_start(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.write("worker.out", numbered(1, 10))
    fake.fail(STREAM, Fault(after_bytes=len(numbered(1, 10))))
    reported = follow_node_log(dashboard, HEAD, "worker.out")
    async with asyncio.timeout(10), aclosing(reported):
        await until(reported, "line 10")
        fake.files["worker.out"] = bytearray(b"other\n" * 20)
        assert await anext(reported) == "other"


async def test_a_writer_that_moves_to_another_file_is_followed_there(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.write("old.out", numbered(1, 10))
    fake.write("new.out", "one\n")
    places = [LogFile(HEAD, "old.out")]

    async def locate() -> LogFile:
        return places[-1]

    moving = Follower(dashboard, locate, poll_s=POLL_S, idle_s=30)
    lines: list[str] = []
    # Less than REPLACED_AFTER_S, after which the known lines of the old file do not matter.
    async with asyncio.timeout(8), aclosing(moving.batches()) as batches:
        async for batch in batches:
            assert not isinstance(batch, Trouble)
            lines.extend(batch)
            if lines[-1:] == ["line 10"]:
                places.append(LogFile(HEAD, "new.out"))
            if lines[-1:] == ["one"]:
                break
    assert lines == [*numbered(1, 10).splitlines(), "one"]


async def test_lines_are_bounded_and_safe_for_a_terminal(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one", "SUCCEEDED")
    fake.write(LOG, b"x" * 10_000_000 + b"\n")
    fake.write(LOG, b"\x1b[31mred\x1b[0m \xff\xfe\n\x1b]0;title\x07tail\n")
    [long, red, tail], _ = await lines_of(follower(dashboard))
    assert long == "x" * LINE_LIMIT_BYTES + "…"
    assert (red, tail) == ("red \ufffd\ufffd", "tail")


async def test_the_source_reports_trouble_and_reports_at_the_end_that_no_more_will_come(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one", "SUCCEEDED")
    fake.write(LOG, numbered(1, 3))
    fake.fail("/api/jobs/one", Fault(status=500, text="boom"))
    source = job_log_source(dashboard, "one", clock=lambda: 5.0)
    events = [event async for event in source.events()]
    troubled, lines, fine, over = events
    assert isinstance(troubled, SourceHealth)
    assert not troubled.ok
    assert lines == LogLines(
        at_s=5.0, source="job:one", stream="job:one", lines=("line 1", "line 2", "line 3")
    )
    assert isinstance(fine, SourceHealth)
    assert fine.ok
    assert over == SourceHealth(at_s=5.0, source="job:one", ok=True, absent=True)


async def test_closing_a_follower_closes_its_stream(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    fake.write(LOG, "hello\n")
    reported = follow_job_log(dashboard, "one")
    assert await anext(reported) == "hello"
    await reported.aclose()
    async with asyncio.timeout(5):
        while fake.open_streams:
            fake.write(LOG, "x\n")  # a closed connection shows at a write
            await asyncio.sleep(0.01)
