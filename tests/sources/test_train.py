from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import aclosing
from typing import Any

from cockpit.model.event import AttemptEnded, AttemptStarted, Event, RunSeen, SourceHealth
from cockpit.model.run import Placement, RunState
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.train_runs import TrainRunsSource
from cockpit.store.store import Store
from tests.sources.fake_dashboard import FakeDashboard, Fault

S = 1_000_000_000


def worker(rank: int) -> dict[str, Any]:
    return {
        "world_rank": rank,
        "node_id": "ab",
        "node_ip": "10.0.0.3",
        "pid": 100 + rank,
        "gpu_ids": [rank],
        "log_file_path": None,
    }


def attempt(start_s: int, end_s: int | None, *ranks: int, **more: Any) -> dict[str, Any]:
    return {
        "status": "RUNNING" if end_s is None else "ERRORED",
        "status_detail": None,
        "start_time_ns": start_s * S,
        "end_time_ns": None if end_s is None else end_s * S,
        "workers": [worker(rank) for rank in ranks],
        **more,
    }


def run(state: str, *attempts: dict[str, Any], run_id: str = "ab12", **more: Any) -> dict[str, Any]:
    return {
        "id": run_id,
        "name": "digits",
        "job_id": "01000000",
        "status": state,
        "status_detail": None,
        "start_time_ns": 900 * S,
        "end_time_ns": None,
        "attempts": list(attempts),
        "job_details": {"submission_id": "raysubmit_1"},
        **more,
    }


def answers(fake: FakeDashboard, *polls: list[dict[str, Any]]) -> None:
    for runs in polls:
        fake.fail("/api/train", Fault(status=200, text=json.dumps({"train_runs": runs})))


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


async def polls(
    dashboard: Dashboard,
    count: int,
    theirs: list[Collection[str] | None] | None = None,
    awaited_s: float = 0.0,
) -> list[list[Event]]:
    """The events of each poll; `theirs` is what telemetry reports at each."""
    clock = Clock()
    reported = iter(theirs or [])
    source = TrainRunsSource(
        dashboard,
        lambda: next(reported, ()),
        awaited_s=awaited_s,
        clock=clock,
        monotonic=clock,
        sleep=clock.sleep,
    )
    found: list[list[Event]] = [[]]
    async with aclosing(source.events()) as events:
        async for event in events:
            found[-1].append(event)
            if isinstance(event, SourceHealth):
                if len(found) == count:
                    break
                found.append([])
    return found


async def test_a_run_is_reported_with_its_attempts_and_then_only_what_changes(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    first, second = attempt(910, 950, 1, 0, status_detail="rank 1 died"), attempt(960, None, 0)
    waiting = attempt(955, None)
    answers(
        fake,
        [run("RUNNING", second, first)],
        [run("RUNNING", second, first)],
        [run("RESTARTING", second | {"end_time_ns": 1004 * S}, first, waiting)],
        [run("ERRORED", first, second, end_time_ns=1010 * S, status_detail="it gave up")],
    )
    whole, same, restarts, over = await polls(dashboard, 4)
    assert [type(event) for event in whole] == [
        RunSeen,
        AttemptStarted,
        AttemptEnded,
        AttemptStarted,
        RunSeen,
        SourceHealth,
    ]
    assert whole[0] == RunSeen(
        at_s=900.0,
        source="train",
        run_id="ab12",
        name="digits",
        state=RunState.INITIALIZING,
        job_id="01000000",
        submission_id="raysubmit_1",
        world_size=1,
    )
    assert whole[1] == AttemptStarted(
        at_s=910.0,
        source="train",
        run_id="ab12",
        attempt=1,
        placements=(
            Placement(0, "ab", "10.0.0.3", 100, (0,)),
            Placement(1, "ab", "10.0.0.3", 101, (1,)),
        ),
    )
    assert isinstance(whole[2], AttemptEnded)
    assert (whole[2].at_s, whole[2].attempt, whole[2].reason) == (950.0, 1, "rank 1 died")
    assert isinstance(whole[4], RunSeen)
    assert (whole[4].at_s, whole[4].state) == (960.0, RunState.RUNNING)
    assert [type(event) for event in same] == [SourceHealth]
    assert [type(event) for event in restarts] == [AttemptEnded, RunSeen, SourceHealth]
    [given_up, _] = over
    assert isinstance(given_up, RunSeen)
    assert (given_up.at_s, given_up.state, given_up.message) == (
        1010.0,
        RunState.ERRORED,
        "it gave up",
    )


async def test_the_stack_trace_of_a_run_that_failed_becomes_its_last_line(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    trace = 'Traceback (most recent call last):\n  File "x"\nValueError: no such thing\n'
    ended: dict[str, Any] = {"end_time_ns": 950 * S, "status_detail": trace}
    answers(fake, [run("ERRORED", attempt(910, 950, 0, status_detail=trace), **ended)])
    [seen] = await polls(dashboard, 1)
    lines = [getattr(event, "reason", "") or getattr(event, "message", "") for event in seen]
    assert lines == ["", "", "ValueError: no such thing", "ValueError: no such thing", ""]


async def test_run_of_telemetry_is_dropped_by_the_train_source(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    runs = [run("RUNNING"), run("RUNNING", run_id="cd34")]
    ended = [run("FINISHED", end_time_ns=990 * S), run("RUNNING", run_id="cd34")]
    answers(fake, runs, runs, ended)
    first, second, third = await polls(dashboard, 3, [(), {"ab12"}, {"ab12", "cd34"}])
    assert {event.run_id for event in first if isinstance(event, RunSeen)} == {"ab12", "cd34"}
    assert [type(event) for event in [*second, *third]] == [SourceHealth, SourceHealth]


async def test_a_run_that_a_second_driver_continues_with_is_no_second_run(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    resumed = run("RUNNING", run_id="cd34", job_id="02000000")
    answers(fake, [run("FINISHED", end_time_ns=990 * S), resumed])
    [seen] = await polls(dashboard, 1, [{"ab12", "01000000", "02000000"}])
    assert [type(event) for event in seen] == [SourceHealth]


async def test_a_new_run_waits_for_telemetry_for_a_while(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    answers(fake, *[[run("RUNNING")]] * 4)
    found = await polls(dashboard, 4, [None, (), (), ()], awaited_s=8.0)
    assert [len(poll) for poll in found] == [1, 1, 1, 3], "three polls of 3 s are 9 s"


async def test_clocks_that_differ_never_hide_a_state(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    ahead = 5000 * S  # the cluster's clock, and 1000 s is this machine's
    answers(
        fake,
        [run("SCHEDULING", start_time_ns=ahead)],
        [run("RUNNING", start_time_ns=ahead)],
        [run("FINISHED", start_time_ns=ahead, end_time_ns=ahead + 7 * S)],
    )
    store = Store()
    for event in [event for poll in await polls(dashboard, 3) for event in poll]:
        store.apply(event)
    seen = store.runs["ab12"]
    assert seen.state is RunState.FINISHED
    assert [state for _, state in seen.states] == [
        RunState.INITIALIZING,
        RunState.SCHEDULING,
        RunState.RUNNING,
        RunState.FINISHED,
    ]


async def test_a_cluster_whose_drivers_do_not_report_is_absent_and_one_that_fails_is_not(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    off = "Train state data is not available. Please make sure Ray Train is running"
    fake.fail("/api/train", Fault(status=500, text=off), Fault(status=500, text="boom"))
    fake.fail("/api/train", Fault(status=200, text="<html>"), Fault(status=200, text="[7]"))
    answers(fake, [run("RUNNING")])
    [absent], [boom], [page], [strange], [*_, well] = await polls(dashboard, 5)
    assert isinstance(absent, SourceHealth)
    assert (absent.ok, absent.absent) == (True, True)
    assert "RAY_TRAIN_ENABLE_STATE_TRACKING=1" in absent.error
    for reported, message in (
        (boom, "boom"),
        (page, "as a Ray dashboard does"),
        (strange, "understood"),
    ):
        assert isinstance(reported, SourceHealth)
        assert not reported.ok
        assert message in reported.error
        assert reported.retry_at_s is not None
        assert reported.retry_at_s > reported.at_s
    assert isinstance(well, SourceHealth)
    assert (well.ok, well.absent, well.error) == (True, False, "")


async def test_new_run_is_reported_in_time_though_clock_was_set_back(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    running = [run("RUNNING", attempt(910, None, 0))]
    answers(fake, running, running)
    clock = Clock()

    async def set_back(seconds: float) -> None:
        clock.now_s -= 3_600.0

    since = Clock()
    source = TrainRunsSource(dashboard, awaited_s=5.0, clock=clock, monotonic=since, sleep=set_back)
    async with aclosing(source.events()) as events:
        assert isinstance(await anext(events), SourceHealth)
        since.now_s += 5.0
        assert isinstance(await anext(events), RunSeen)
