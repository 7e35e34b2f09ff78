"""The source of failures: kills of the memory monitor, and logs of what ended badly, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from cockpit.model.cluster import DashboardRoute
from cockpit.model.death import BadEnd, MemoryKill
from cockpit.model.event import Event, LogExcerpted, MemoryKillsListed, SourceHealth
from cockpit.model.run import Placement
from cockpit.sources.ray import answers
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.failures import KEPT_ERRORS, KEPT_LINES, FailuresSource, chosen
from tests.sources.fake_dashboard import HEAD, FakeDashboard

RAW = {
    "worker_id": "w1",
    "node_id": "n1",
    "ip": "10.0.0.1",
    "pid": 4711,
    "end_time_ms": 1_763_712_000_000,
    "exit_type": "NODE_OUT_OF_MEMORY",
    "exit_detail": "1 worker(s) were killed due to the node running low on memory. token=abcdef",
}


def answer(*raw: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"result": {"total": len(raw), "result": list(raw)}}}


def test_answer_is_read_newest_first_without_secrets() -> None:
    newer = RAW | {"worker_id": "w2", "end_time_ms": 1_763_712_001_000}
    kills = answers.memory_kills(answer(RAW, newer))
    assert [kill.worker_id for kill in kills] == ["w2", "w1"]
    assert kills[1].at_s == 1_763_712_000.0
    assert "abcdef" not in kills[1].detail


def test_detail_has_the_memory_of_the_node_and_the_largest_processes() -> None:
    detail = "\n".join(
        [
            "1 worker(s) were killed due to the node running low on memory. It was 13.47GB used",
            "OOM kill reason: Memory usage 14406541312B exceeded threshold of 13649311744B",
            *["(global lru) bytes evicted: 0"] * 30,
            "Top 10 memory users: PID\tMEM(GB)\tCOMMAND",
            *[f"{pid}\t0.47\tray::RayTrainWorker" for pid in range(1, 11)],
            "Refer to the documentation",
        ]
    )
    [kill] = answers.memory_kills(answer(RAW | {"exit_detail": detail}))
    assert "exceeded threshold of 13649311744B" in kill.detail
    assert kill.detail.endswith("3 0.47 ray::RayTrainWorker")
    assert "evicted" not in kill.detail


class Kills(Dashboard):
    """A dashboard that has kills, and no log."""

    def __init__(self, *kills: MemoryKill) -> None:
        super().__init__(DashboardRoute("http://127.0.0.1:1"))
        self.kills, self.times = kills, 0

    async def memory_kills(self) -> tuple[MemoryKill, ...]:
        self.times += 1
        return self.kills


def polled(source: FailuresSource) -> list[Event]:
    async def run() -> list[Event]:
        return [event async for event in source.poll()]

    return asyncio.run(run())


def test_kills_are_listed_when_they_change_and_asked_for_rarely() -> None:
    killed = MemoryKill("w", "n", "10.0.0.1", 1, 5.0)
    dashboard, clock = Kills(killed), [100.0]
    source = FailuresSource(dashboard, monotonic=lambda: clock[0])
    assert [type(event) for event in polled(source)] == [MemoryKillsListed, SourceHealth]
    assert [type(event) for event in polled(source)] == [SourceHealth]
    assert dashboard.times == 1
    clock[0] += 15.0
    assert [type(event) for event in polled(source)] == [SourceHealth]
    dashboard.kills = ()
    clock[0] += 15.0
    [listed, _] = polled(source)
    assert isinstance(listed, MemoryKillsListed)
    assert listed.kills == ()


def test_log_of_a_failed_job_is_read_once() -> None:
    async def run() -> tuple[list[Event], FakeDashboard]:
        fake = FakeDashboard()
        fake.add_job("job-1", "FAILED")
        fake.write("job-driver-job-1.log", "Traceback (most recent call last):\nValueError: no\n")

        async def ends() -> Sequence[BadEnd]:
            return [BadEnd("job-1"), BadEnd("gone")]

        async with fake.serve(), Dashboard(fake.route) as dashboard:
            source = FailuresSource(dashboard, ends)
            found: list[Event] = []
            for _ in range(5):
                found += [event async for event in source.poll()]
            return found, fake

    found, fake = asyncio.run(run())
    [excerpt] = [event for event in found if isinstance(event, LogExcerpted)]
    assert (excerpt.job_id, excerpt.log, excerpt.rank) == ("job-1", "driver log", None)
    assert excerpt.lines[-1] == "ValueError: no"
    assert fake.times_asked("/api/jobs/gone") == 3


def test_standard_error_of_a_rank_is_found_by_its_process() -> None:
    async def run() -> list[Event]:
        fake = FakeDashboard()
        fake.write("worker-aa-01000000-4711.err", "*** SIGSEGV received at time=1763712000\n")

        async def ends() -> Sequence[BadEnd]:
            return [BadEnd("job-1", "run-1", 2, (Placement(1, HEAD, "10.0.0.1", 4711),))]

        async with fake.serve(), Dashboard(fake.route) as dashboard:
            return [event async for event in FailuresSource(dashboard, ends).poll()]

    [excerpt] = [event for event in asyncio.run(run()) if isinstance(event, LogExcerpted)]
    assert (excerpt.run_id, excerpt.attempt, excerpt.rank) == ("run-1", 2, 1)
    assert excerpt.lines == ("*** SIGSEGV received at time=1763712000",)


def test_chosen_lines_are_early_errors_and_the_end() -> None:
    lines = ["start", "OSError: [Errno 28] No space left", *["ok"] * 500, "done"]
    kept = chosen(lines)
    assert kept[0] == "OSError: [Errno 28] No space left"
    assert len(kept) == 1 + KEPT_LINES
    assert kept[-1] == "done"
    many = chosen(["an error"] * 1000)
    assert len(many) == KEPT_ERRORS + KEPT_LINES
