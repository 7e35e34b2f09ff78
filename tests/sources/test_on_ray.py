"""The same behaviour as of the fake dashboard, of a real one."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from pathlib import Path

import pytest

from cockpit.backends.local import LocalBackend
from cockpit.launch import submission
from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import NotAllowedError, UsageError
from cockpit.model.event import RankSampled, SourceHealth
from cockpit.model.run import Job, JobStatus
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import MissingError
from cockpit.sources.ray.logs import follow_job_log
from cockpit.sources.ray.train_runs import TrainRunsSource
from cockpit.sources.telemetry.source import TelemetrySource
from tests.sources.cutting_proxy import CuttingProxy
from training.telemetry.names import FILE_PATTERN

pytestmark = [pytest.mark.slow, pytest.mark.ray]

LINES = 5000
WAIT_S = 600.0
PRINTS = f"""
import os, time, training.telemetry.wire
assert "training.telemetry" in os.environ["RAY_TRAIN_CALLBACKS"]
for number in range({LINES}):
    print("line", number, flush=True)
    if number % 500 == 0:
        time.sleep(0.1)
"""
WRITES = """
import time
from pathlib import Path
from training.telemetry.head.stream import StreamFile
from training.telemetry.names import file_name
from training.telemetry.wire import Run, Steps, Tick
import ray
ray.init()
logs = Path(ray._private.worker._global_node.get_logs_dir_path())
path = logs / file_name(ray.get_runtime_context().get_job_id())
stream = StreamFile(path, disk_bytes=120_000, segments=40) if SEGMENTS else StreamFile(path)
stream.append(time.time(), Run(run=RUN, name="digits", state="RUNNING"))
for step in range(1, 201):
    row = Steps(rank=0, attempt=1, t=time.time(), step=step, first_step=step, steps_total=step)
    stream.append(time.time(), Tick(run=RUN, ranks=(row,)))
    time.sleep(0.03)
"""
LAST_STEP = 200


def writes(run: str, *, segments: bool) -> str:
    return WRITES.replace("RUN,", f"{run!r},").replace("SEGMENTS", str(segments))


@pytest.fixture
async def route(cluster: LocalBackend) -> DashboardRoute:
    return await cluster.dashboard()


async def ended(ray: Dashboard, job_id: str) -> Job:
    async with asyncio.timeout(WAIT_S):
        while True:
            job = await ray.job(job_id)
            if job.status.is_over:
                return job
            await asyncio.sleep(0.1)


async def start(ray: Dashboard, directory: Path, program: str) -> Job:
    code = directory / "code"
    code.mkdir(exist_ok=True)
    (code / "script.py").write_text(program)
    return await submission.launch(ray, submission.script_spec(("python", "script.py"), code))


async def test_the_head_is_listed_with_its_numbers(ray: Dashboard) -> None:
    async with asyncio.timeout(20):  # the agent's first report takes some seconds
        while True:
            [head] = [node for node in await ray.nodes() if node.is_head]
            if head.cpu_percent is not None:
                break
            await asyncio.sleep(0.1)
    assert head.alive
    assert (head.memory_total_bytes or 0) > (head.memory_used_bytes or 0) > 0
    assert head.resources["node:__internal_head__"] == 1.0
    assert (await ray.version()).ray.count(".") == 2
    assert head.ip in await ray.living_addresses()


async def test_a_wrong_or_missing_token_is_refused_and_reports_it(route: DashboardRoute) -> None:
    for headers, text in (({}, "requires a token"), ({"Authorization": "Bearer no"}, "refused")):
        async with Dashboard(DashboardRoute(route.base_url, headers)) as stranger:
            with pytest.raises(NotAllowedError, match=text):
                await stranger.nodes()


async def test_task_that_no_node_has_room_for_is_in_the_demand(
    ray: Dashboard, tmp_path: Path
) -> None:
    program = (
        "import ray\n"
        "@ray.remote(num_gpus=3, num_cpus=0)\n"
        "def train(): pass\n"
        "ray.get(train.remote())\n"
    )
    started = await start(ray, tmp_path, program)
    async with asyncio.timeout(WAIT_S):
        while not (report := await ray.autoscaler()).demand:  # noqa: ASYNC110 - Ray reports it
            await asyncio.sleep(0.5)
    assert [demand.text for demand in report.demand] == ["3 GPUs"]
    assert (report.pending, report.launching, report.types) == ((), {}, {})
    await submission.stop(ray, started.id)


async def test_a_log_is_whole_though_the_connection_is_cut_again_and_again(
    ray: Dashboard, route: DashboardRoute, tmp_path: Path
) -> None:
    started = await start(ray, tmp_path, PRINTS)
    proxy = CuttingProxy(route, "/api/v0/logs/", deque([300, 9_000, 20_000, 1, 40_000, 70_000]))
    async with asyncio.timeout(WAIT_S), proxy.serve(), Dashboard(proxy.route) as through:
        reported = follow_job_log(through, started.id)
        lines = [line async for line in reported if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(LINES)]
    assert proxy.cut >= 3
    assert (await ended(ray, started.id)).status is JobStatus.SUCCEEDED

    plain = CuttingProxy(route, "none", deque())
    async with plain.serve(), Dashboard(plain.route) as through:
        again = await start(through, tmp_path, PRINTS)
    assert "POST /api/jobs/" in plain.requests
    assert not [request for request in plain.requests if request.startswith("PUT")]
    await submission.stop(ray, again.id)
    assert (await ended(ray, again.id)).status is JobStatus.STOPPED
    await submission.delete(ray, again.id)
    looks = asyncio.get_running_loop().time() + 3.0
    while asyncio.get_running_loop().time() < looks:
        with pytest.raises(MissingError):
            await ray.job(again.id)
        await asyncio.sleep(0.5)


async def test_a_script_that_cannot_start_fails_with_its_reason_and_can_be_resumed(
    ray: Dashboard, tmp_path: Path
) -> None:
    started = await start(ray, tmp_path, "import nothing_of_that_name\n")
    lines = [line async for line in follow_job_log(ray, started.id)]
    assert lines[-1] == "ModuleNotFoundError: No module named 'nothing_of_that_name'"
    failed = await ended(ray, started.id)
    assert failed.status is JobStatus.FAILED
    assert "nothing_of_that_name" in failed.message
    again = await submission.resume(ray, started.id)
    assert again.metadata["cockpit.resumed_from"] == started.id
    with pytest.raises(UsageError, match="cockpit stop"):
        await submission.delete(ray, again.id)
    assert (await ended(ray, again.id)).status is JobStatus.FAILED


async def test_a_job_that_does_not_exist_is_distinguished_from_a_failure(ray: Dashboard) -> None:
    for change in (submission.stop, submission.delete, submission.resume):
        with pytest.raises(MissingError, match="no job 'nope'"):
            await change(ray, "nope")


@pytest.mark.parametrize("segments", [False, True], ids=["one file", "many files"])
async def test_each_step_comes_once_though_the_connection_is_cut_again_and_again(
    ray: Dashboard, route: DashboardRoute, tmp_path: Path, segments: bool
) -> None:
    run = f"segments-{segments}"
    started = await start(ray, tmp_path, writes(run, segments=segments))
    proxy = CuttingProxy(route, "/api/v0/logs/", deque([300, 700, 5_000, 1, 2_000, 9_000]))
    async with asyncio.timeout(WAIT_S), proxy.serve(), Dashboard(proxy.route) as through:
        steps = await steps_of(through, run)
    assert steps == list(range(1, LAST_STEP + 1))
    assert proxy.cut >= 2
    assert (await ended(ray, started.id)).status is JobStatus.SUCCEEDED
    head = next(node.id for node in await ray.nodes() if node.is_head)
    files = await ray.log_files(head, FILE_PATTERN)
    assert (len(files) > 5) is segments
    async with asyncio.timeout(WAIT_S):
        assert await steps_of(ray, run) == steps  # attaching late shows the past


async def steps_of(dashboard: Dashboard, run: str) -> list[int]:
    steps: list[int] = []
    async with aclosing(TelemetrySource(dashboard).events()) as events:
        async for event in events:
            if isinstance(event, RankSampled) and event.run_id == run:
                steps += [sample.step for sample in event.samples]
            if steps and steps[-1] == LAST_STEP:
                break
    return steps


async def test_train_runs_are_absent_until_a_driver_reports_them(ray: Dashboard) -> None:
    async with asyncio.timeout(30), aclosing(TrainRunsSource(ray).events()) as events:
        first = await anext(aiter(events))
    assert isinstance(first, SourceHealth)
    assert (first.ok, first.absent) == (True, True)
    assert "RAY_TRAIN_ENABLE_STATE_TRACKING=1" in first.error
