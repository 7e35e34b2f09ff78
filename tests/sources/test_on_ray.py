"""The same behaviour as of the fake dashboard, of a real one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from cockpit.backends.local import LocalBackend
from cockpit.launch import submission
from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import NotAllowedError, UsageError
from cockpit.model.event import RankSampled
from cockpit.model.run import Job, JobStatus
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import MissingError
from cockpit.sources.ray.logs import follow_job_log
from cockpit.sources.telemetry.source import TelemetrySource
from tests.local_cluster import running_cluster
from tests.sources.cutting_proxy import CuttingProxy

pytestmark = [pytest.mark.slow, pytest.mark.ray]

LINES = 5000
PRINTS = f"""
import os, time, training.telemetry.wire
assert "training.telemetry" in os.environ["RAY_TRAIN_CALLBACKS"]
for number in range({LINES}):
    print("line", number, flush=True)
    if number % 500 == 0:
        time.sleep(0.1)
"""
WRITES = """
import sys, time
from pathlib import Path
from training.telemetry.head.stream import StreamFile
from training.telemetry.wire import Run, Steps, Tick, file_name
import ray
ray.init()
logs = Path(ray._private.worker._global_node.get_logs_dir_path())
stream = StreamFile(logs / file_name(ray.get_runtime_context().get_job_id()))
for step in range(1, 201):
    row = Steps(rank=0, attempt=1, t=time.time(), step=step, first_step=step, steps_total=step)
    stream.append(time.time(), Tick(run="ab12", ranks=(row,)))
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBackend]:
    with running_cluster("sources", ()) as backend:
        yield backend


@pytest.fixture
async def route(cluster: LocalBackend) -> DashboardRoute:
    return await cluster.dashboard()


@pytest.fixture
async def ray(route: DashboardRoute) -> AsyncIterator[Dashboard]:
    async with Dashboard(route) as dashboard:
        yield dashboard


async def ended(ray: Dashboard, job_id: str) -> Job:
    async with asyncio.timeout(30):
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
            [head] = await ray.nodes()
            if head.cpu_percent is not None:
                break
            await asyncio.sleep(0.1)
    assert head.is_head
    assert head.alive
    assert (head.memory_total_bytes or 0) > (head.memory_used_bytes or 0) > 0
    assert head.resources["node:__internal_head__"] == 1.0
    assert (await ray.version()).ray.count(".") == 2


async def test_a_wrong_or_missing_token_is_refused_and_says_so(route: DashboardRoute) -> None:
    for headers, words in (({}, "wants a token"), ({"Authorization": "Bearer no"}, "refused")):
        async with Dashboard(DashboardRoute(route.base_url, headers)) as stranger:
            with pytest.raises(NotAllowedError, match=words):
                await stranger.nodes()


async def test_a_log_is_whole_though_the_connection_is_cut_again_and_again(
    ray: Dashboard, route: DashboardRoute, tmp_path: Path
) -> None:
    started = await start(ray, tmp_path, PRINTS)
    proxy = CuttingProxy(route, "/api/v0/logs/", deque([300, 9_000, 20_000, 1, 40_000, 70_000]))
    async with asyncio.timeout(60), proxy.serve(), Dashboard(proxy.route) as through:
        told = follow_job_log(through, started.id)
        lines = [line async for line in told if line.startswith("line ")]
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


async def test_a_job_that_does_not_exist_is_told_apart_from_a_failure(ray: Dashboard) -> None:
    for change in (submission.stop, submission.delete, submission.resume):
        with pytest.raises(MissingError, match="no job 'nope'"):
            await change(ray, "nope")


async def test_telemetry_is_whole_though_the_connection_is_cut_again_and_again(
    ray: Dashboard, route: DashboardRoute, tmp_path: Path
) -> None:
    started = await start(ray, tmp_path, WRITES)
    proxy = CuttingProxy(route, "/api/v0/logs/", deque([300, 700, 5_000, 1, 9_000]))
    async with asyncio.timeout(60), proxy.serve(), Dashboard(proxy.route) as through:
        steps = await steps_of(through)
    assert steps == list(range(1, 201))
    assert proxy.cut >= 2
    assert (await ended(ray, started.id)).status is JobStatus.SUCCEEDED
    async with asyncio.timeout(20):
        assert await steps_of(ray) == steps  # attaching late shows the past


async def steps_of(dashboard: Dashboard) -> list[int]:
    steps: list[int] = []
    async with aclosing(TelemetrySource(dashboard).events()) as events:
        async for event in events:
            if isinstance(event, RankSampled):
                steps += [sample.step for sample in event.samples]
            if steps and steps[-1] == 200:
                break
    return steps
