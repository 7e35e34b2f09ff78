"""All logs of a run as one stream of the UI."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from cockpit.backends import run_log
from cockpit.backends.run_log import AllLogs, RunLogSource
from cockpit.logs.block import LineFilter
from cockpit.model.event import Event, LogLines, SourceHealth
from cockpit.sources.ray.dashboard import Dashboard
from tests.simulated_backend import ScriptedBackend
from tests.sources.fake_dashboard import HEAD, FakeDashboard, Fault, node
from tests.sources.test_run_logs import DEAD, RUNS, WORKER, run

DRIVER, RANK = "job-driver-j1.log", "train/ray-train-app-worker-0.log"


@pytest.fixture(autouse=True)
def in_utc_and_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "TICK_S", 0.05)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture
def ranks(fake: FakeDashboard) -> FakeDashboard:
    """A run of three ranks, one of them on a dead node."""
    fake.nodes = [node(), node(WORKER, head=False), node(DEAD, head=False, alive=False)]
    fake.add_job("j1")
    fake.fail(RUNS, Fault(200, run()))
    return fake


def source(served: FakeDashboard, name: str, job: str = "") -> RunLogSource:
    async def known() -> tuple[str, Sequence[str]]:
        return job, ["pod-1"]

    backend = ScriptedBackend(route=served.route)
    return RunLogSource(backend, name, known)


async def lines_until(events: AsyncIterator[Event], text: str) -> list[str]:
    found: list[str] = []
    async for event in events:
        if isinstance(event, LogLines):
            assert event.stream == event.source
            found += event.lines
        if any(text in line for line in found):
            return found
    raise AssertionError(f"no line has {text!r}: {found}")


async def test_lines_of_all_logs_are_merged_and_followed(ranks: FakeDashboard) -> None:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    ranks.write(DRIVER, f"{day} 00:00:02 second\n")
    ranks.write(RANK, f"{day} 00:00:01 first\n{day} 00:00:03 ValueError: third\n")
    events = source(ranks, "r1").events()
    lines = await lines_until(events, "third")
    assert any(line.startswith("Not read: rank 2: its Ray node is dead") for line in lines)
    of_day = [line.split("  ", 1)[1] for line in lines if line[2:3] == "-" and "00:00:0" in line]
    assert of_day == [
        "rank 0  first",
        "driver  second",
        "rank 0  >> FIRST ERROR: ValueError: third",
    ]
    ranks.write(RANK, f"{day} 00:00:04 fourth\n")
    assert (await lines_until(events, "fourth"))[-1].endswith("rank 0  fourth")
    await events.aclose()


async def test_empty_log_does_not_delay_the_first_rows(
    ranks: FakeDashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray sends nothing of it, not even the head of a response."""
    monkeypatch.setattr(run_log, "CATCH_UP_S", 60.0)
    monkeypatch.setattr(run_log, "QUIET_S", 0.2)
    ranks.write(DRIVER, "hello\n")
    ranks.write(RANK, "")
    events = source(ranks, "r1").events()
    async with asyncio.timeout(30.0):
        await lines_until(events, "driver  hello")
    await events.aclose()


@pytest.mark.parametrize("follow", [False, True])
async def test_statistics_at_the_end_of_a_raylets_log_do_not_hide_its_lines(
    ranks: FakeDashboard, dashboard: Dashboard, follow: bool
) -> None:
    """A raylet writes about 150 lines of them each minute."""
    time = "[2026-11-23 12:00:00,123 I 1 2]"
    ranks.write("raylet.out", f"{time} lease lost\n" + "[state-dump] 9 total\n" * 150)
    logs = AllLogs(ScriptedBackend(), dashboard, LineFilter(), lambda _: None)
    await logs.find("r1", [])
    await logs.read(20, follow=follow)
    assert [row.text for row in logs.merge.rows() if row.text.endswith("lease lost")]
    await logs.close()


async def test_logs_of_the_job_are_read_if_ray_does_not_list_the_run(fake: FakeDashboard) -> None:
    fake.add_job("j1")
    fake.write(DRIVER, "hello\n")
    fake.fail(RUNS, *[Fault(200, '{"train_runs": []}')] * 4)
    events = source(fake, "telemetry-id", job="j1").events()
    await lines_until(events, "driver  hello")
    await events.aclose()


async def test_unknown_run_is_an_error_that_is_retried(ranks: FakeDashboard) -> None:
    events = source(ranks, "nothing").events()
    health = await anext(events)
    assert isinstance(health, SourceHealth)
    assert not health.ok
    assert health.retry_at_s is not None
    assert "There is no run or job 'nothing'" in health.error
    ranks.fail(RUNS, Fault(200, run().replace('"r1"', '"nothing"')))
    ranks.write(RANK, "it is there now\n")
    await lines_until(events, "it is there now")
    await events.aclose()


async def test_source_ends_with_the_job(ranks: FakeDashboard) -> None:
    ranks.write(DRIVER, "done\n")
    ranks.end_job("j1")
    last = [event async for event in source(ranks, "r1").events()][-1]
    assert isinstance(last, SourceHealth)
    assert last.absent
    assert ranks.asked
    assert HEAD in "".join(ranks.asked)
