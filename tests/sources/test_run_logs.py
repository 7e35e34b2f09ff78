"""All logs of a run: their locations, and their last lines."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from cockpit.model.error import UsageError
from cockpit.sources.ray import run_logs
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.run_logs import Place, Unread
from tests.sources.fake_dashboard import HEAD, FakeDashboard, Fault, node

RUNS = "/api/train/v2/runs/v1"
WORKER, DEAD = "b" * 56, "c" * 56


def run(*, over: bool = False, started_s: float = 1_763_712_001, attempts: int = 1) -> str:
    """A run with a rank on the head, one on a worker node and one on a node that died."""
    workers = [
        {
            "world_rank": rank,
            "node_id": node_id,
            "node_ip": "10.0.0.1",
            "pid": 100 + rank,
            "log_file_path": f"/tmp/ray/session_x/logs/train/ray-train-app-worker-{rank}.log",
        }
        for rank, node_id in enumerate((HEAD, WORKER, DEAD))
    ]
    found = {
        "id": "r1",
        "name": "digits",
        "job_id": "01000000",
        "job_details": {"submission_id": "j1"},
        "status": "FINISHED" if over else "RUNNING",
        "start_time_ns": int(started_s * 1e9),
        "controller_log_file_path": "/tmp/ray/session_x/logs/train/ray-train-app-controller-7.log",
        "attempts": [
            {"status": "RUNNING", "start_time_ns": number * 10**9, "workers": workers}
            for number in range(1, attempts + 1)
        ],
    }
    return json.dumps({"train_runs": [found]})


@pytest.fixture
def cluster(fake: FakeDashboard) -> FakeDashboard:
    fake.nodes = [node(), node(WORKER, head=False), node(DEAD, head=False, alive=False)]
    fake.add_job("j1")
    fake.fail(RUNS, Fault(200, run()))
    fake.write("worker-abc-01000000-101.err", "Segmentation fault\n")
    fake.write("worker-abc-01000000-999.err", "of another run\n")
    return fake


async def read(
    dashboard: Dashboard, places: Sequence[Place], lines: int = 10
) -> tuple[dict[str, list[str]], list[Unread]]:
    found: dict[str, list[str]] = {}
    unread = await run_logs.read_tails(
        dashboard,
        places,
        lambda index, batch: found.setdefault(places[index].log.name, []).extend(
            line.decode(errors="replace") for line in batch
        ),
        lines=lambda log: lines,
    )
    return found, unread


async def test_logs_of_ranks_driver_controller_raylets_and_gcs_are_found(
    cluster: FakeDashboard, dashboard: Dashboard
) -> None:
    found = await run_logs.find(dashboard)
    assert {place.log.name: place.file.name for place in found.places} == {
        "driver": "job-driver-j1.log",
        "controller": "train/ray-train-app-controller-7.log",
        "controller system": "train/ray-train-sys-controller-7.log",
        "rank 0": "train/ray-train-app-worker-0.log",
        "rank 1": "train/ray-train-app-worker-1.log",
        "rank 1 stderr": "worker-abc-01000000-101.err",
        "raylet 127.0.0.10 aaaaaaaa": "raylet.out",
        "raylet 127.0.0.10 bbbbbbbb": "raylet.out",
        "gcs": "gcs_server.out",
    }
    assert found.title == "run digits"


async def test_ranks_of_failed_attempts_are_read_too(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.nodes = [node(), node(WORKER, head=False)]
    fake.add_job("j1")
    fake.fail(RUNS, Fault(200, run(attempts=7)))
    found = await run_logs.find(dashboard)
    names = [place.log.name for place in found.places if place.log.rank == 0]
    assert names == ["rank 0", *(f"rank 0 (attempt {number})" for number in (6, 5, 4, 3))]
    assert Unread("ranks of 2 earlier attempts", "too many") in found.unread


async def test_log_of_a_rank_on_a_dead_node_is_named_as_not_read(
    cluster: FakeDashboard, dashboard: Dashboard
) -> None:
    found = await run_logs.find(dashboard)
    assert Unread("rank 2", "its Ray node is dead, and its log with it") in found.unread


@pytest.mark.parametrize("name", ["digits", "r1", "j1", "01000000"])
async def test_run_is_found_by_name_id_and_job(
    cluster: FakeDashboard, dashboard: Dashboard, name: str
) -> None:
    assert (await run_logs.find(dashboard, name)).title == "run digits"


async def test_job_without_a_listed_run_has_its_driver_log(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("j2")
    fake.fail(RUNS, Fault(200, json.dumps({"train_runs": []})))
    found = await run_logs.find(dashboard)
    assert found.title == "job j2"
    assert "driver" in {place.log.name for place in found.places}


async def test_unknown_name_lists_what_there_is(
    cluster: FakeDashboard, dashboard: Dashboard
) -> None:
    with pytest.raises(UsageError, match=r"There is no run or job 'other'") as caught:
        await run_logs.find(dashboard, "other")
    assert "digits" in caught.value.why


async def test_last_lines_are_read_and_missing_files_are_named(
    cluster: FakeDashboard, dashboard: Dashboard
) -> None:
    found = await run_logs.find(dashboard)
    cluster.write("job-driver-j1.log", "one\ntwo\nthree\ntorn")
    cluster.write("raylet.out", b"\xff\n")
    lines, unread = await read(dashboard, found.places, lines=2)
    assert lines["driver"] == ["three", "torn"]
    assert lines["rank 1 stderr"] == ["Segmentation fault"]
    assert lines["raylet 127.0.0.10 bbbbbbbb"] == ["\ufffd"]
    assert {one.name for one in unread} == {
        "controller",
        "controller system",
        "rank 0",
        "rank 1",
        "gcs",
    }


async def test_requests_at_one_time_are_bounded(fake: FakeDashboard, dashboard: Dashboard) -> None:
    most = running = 0

    async def one(_: int) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await dashboard.version()
        running -= 1

    await run_logs.each(range(100), one)
    assert (most, fake.times_asked("/api/version")) == (run_logs.CONCURRENCY, 100)
