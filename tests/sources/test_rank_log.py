"""A rank's own log: found by Ray Train's state, wherever the newest attempt runs."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from cockpit.model.event import Event, LogLines, SourceHealth
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.logs import LogSource
from cockpit.sources.ray.rank_log import rank_log_source
from tests.sources.fake_dashboard import HEAD, FakeDashboard, Fault

RUNS = "/api/train/v2/runs/v1"


def state(*logs: str, over: bool) -> str:
    """One run, an attempt for each of the logs of its rank 1."""
    attempts = [
        {
            "status": "RUNNING",
            "start_time_ns": number * 10**9,
            "workers": [
                {
                    "world_rank": 1,
                    "node_id": HEAD,
                    "node_ip": "10.0.0.1",
                    "pid": 100 + number,
                    "log_file_path": f"/tmp/ray/session_x/logs/{log}",
                }
            ],
        }
        for number, log in enumerate(logs, 1)
    ]
    status = "FINISHED" if over else "RUNNING"
    run = {"id": "r1", "name": "digits", "job_id": "01000000", "status": status}
    return json.dumps({"train_runs": [run | {"start_time_ns": 10**9, "attempts": attempts}]})


async def told(source: LogSource) -> list[Event]:
    async with asyncio.timeout(10), aclosing(source.events()) as events:
        return [event async for event in events]


async def test_the_log_is_that_of_the_newest_attempt_and_ends_with_the_run(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.write("old.out", "of attempt 1\n")
    fake.write("new.out", "one\n\x1b[31mtwo\n")
    fake.fail(RUNS, Fault(200, state("old.out", "new.out", over=True)))
    events = await told(rank_log_source(dashboard, 1))
    lines = [line for event in events if isinstance(event, LogLines) for line in event.lines]
    assert lines == ["one", "two"]
    assert {event.stream for event in events if isinstance(event, LogLines)} == {"rank:1"}
    last = events[-1]
    assert isinstance(last, SourceHealth)
    assert (last.ok, last.absent) == (True, True)


async def test_a_new_attempt_whose_ranks_are_not_placed_yet_is_waited_for(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.write("new.out", "one\n")
    restarting = json.loads(state("old.out", "new.out", over=False))
    restarting["train_runs"][0]["attempts"][-1]["workers"] = []
    over = state("old.out", "new.out", over=True)
    fake.fail(RUNS, Fault(200, json.dumps(restarting)), Fault(200, over))
    events = await told(rank_log_source(dashboard, 1))
    assert [event.lines for event in events if isinstance(event, LogLines)] == [("one",)]
    assert all(event.ok for event in events if isinstance(event, SourceHealth))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (state("a.out", over=False), "no such rank now"),
        (json.dumps({"train_runs": []}), "RAY_TRAIN_ENABLE_STATE_TRACKING"),
    ],
)
async def test_a_rank_without_a_log_reports_why_and_is_not_asked_for_again(
    fake: FakeDashboard, dashboard: Dashboard, answer: str, why: str
) -> None:
    fake.fail(RUNS, Fault(200, answer))
    [event] = await told(rank_log_source(dashboard, 7))
    assert isinstance(event, SourceHealth)
    assert not event.ok
    assert "rank 7" in event.error
    assert why in event.error


async def test_a_run_without_ray_train_does_not_show_the_log_of_the_one_before_it(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.write("old.out", "of the run before\n")
    before = json.loads(state("old.out", over=True))
    before["train_runs"][0]["job_details"] = {"submission_id": "ddp-1"}
    fake.fail(RUNS, Fault(200, json.dumps(before)), Fault(200, json.dumps(before)))

    async def torchrun() -> str:
        return "ddp_torchrun-2"

    [event] = await told(rank_log_source(dashboard, 1, submission=torchrun))
    assert isinstance(event, SourceHealth)
    assert "ddp_torchrun-2 has no run of Ray Train" in event.error

    async def ddp() -> str:
        return "ddp-1"

    events = await told(rank_log_source(dashboard, 1, submission=ddp))
    assert [line for one in events if isinstance(one, LogLines) for line in one.lines] == [
        "of the run before"
    ]
