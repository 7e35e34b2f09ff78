"""A stream of many files followed through the log routes of a real Ray."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.backends.local import LocalBackend
from cockpit.model.run import JobStatus
from cockpit.sources.ray.dashboard import Dashboard
from tests.local_cluster import running_cluster
from tests.sources.cutting_proxy import CuttingProxy
from tests.sources.test_on_ray import ended, start, steps_of
from training.telemetry.wire import FILE_PATTERN

pytestmark = [pytest.mark.slow, pytest.mark.ray]

WRITES = """
import time
from pathlib import Path
from training.telemetry.head.stream import StreamFile
from training.telemetry.wire import Run, Steps, Tick, file_name
import ray
ray.init()
logs = Path(ray._private.worker._global_node.get_logs_dir_path())
path = logs / file_name(ray.get_runtime_context().get_job_id())
stream = StreamFile(path, disk_bytes=120_000, segments=40)
stream.append(time.time(), Run(run="ab12", name="digits", state="RUNNING"))
for step in range(1, 201):
    row = Steps(rank=0, attempt=1, t=time.time(), step=step, first_step=step, steps_total=step)
    stream.append(time.time(), Tick(run="ab12", ranks=(row,)))
    time.sleep(0.03)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBackend]:
    with running_cluster("segments", ()) as backend:
        yield backend


async def test_each_record_comes_once_over_many_files_and_cut_connections(
    cluster: LocalBackend, tmp_path: Path
) -> None:
    route = await cluster.dashboard()
    async with Dashboard(route) as ray:
        started = await start(ray, tmp_path, WRITES)
        proxy = CuttingProxy(route, "/api/v0/logs/", deque([300, 700, 5_000, 1, 2_000, 9_000]))
        async with asyncio.timeout(150), proxy.serve(), Dashboard(proxy.route) as through:
            steps = await steps_of(through)
        assert steps == list(range(1, 201))
        assert proxy.cut >= 2
        assert (await ended(ray, started.id)).status is JobStatus.SUCCEEDED
        head = next(node.id for node in await ray.nodes() if node.is_head)
        assert len(await ray.log_files(head, FILE_PATTERN)) > 5
        async with asyncio.timeout(60):
            assert await steps_of(ray) == steps
