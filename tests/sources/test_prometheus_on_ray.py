"""The whole way: a real run's numbers, through Ray's metrics and a real Prometheus, as a past."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from cockpit.backends.local import LocalBackend
from cockpit.launch import submission
from cockpit.model.event import Event, HistoryLoaded, RankSampled, RunSeen, SourceHealth
from cockpit.model.tracking import RunRef
from cockpit.sources.prometheus.api import Prometheus
from cockpit.sources.prometheus.settings import PrometheusSettings
from cockpit.sources.prometheus.source import PrometheusSource
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.telemetry.source import TelemetrySource
from tests.events import watched_runs
from tests.local_cluster import running_cluster
from tests.sources.prometheus_server import PrometheusServer

pytestmark = [pytest.mark.slow, pytest.mark.ray]

TRAINS = """
import time, ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from training import telemetry

def loop(config):
    until = time.monotonic() + 30
    while time.monotonic() < until:
        time.sleep(0.2)
        rank = ray.train.get_context().get_world_rank()
        telemetry.step(loss=2.0 + rank, samples=8)

DataParallelTrainer(
    loop,
    train_loop_config={},
    scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
    run_config=RunConfig(name="told", storage_path=STORAGE),
).fit()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBackend]:
    with running_cluster("prom") as backend:
        yield backend


@pytest.fixture
async def ray(cluster: LocalBackend) -> AsyncIterator[Dashboard]:
    async with Dashboard(await cluster.dashboard()) as dashboard:
        yield dashboard


async def test_a_runs_numbers_come_back_from_prometheus(
    ray: Dashboard, cluster: LocalBackend, tmp_path: Path
) -> None:
    assert not await ray.reaches_prometheus()
    assert await ray.grafana() is None
    route = await cluster.dashboard()
    code = tmp_path / "code"
    code.mkdir()
    (code / "script.py").write_text(TRAINS.replace("STORAGE", repr(str(tmp_path / "results"))))
    await submission.launch(ray, submission.script_spec(("python", "script.py"), code))
    served = tmp_path / "prometheus"
    served.mkdir()
    found_by = f"{route.base_url}/api/prometheus/sd"
    token = route.headers["Authorization"].removeprefix("Bearer ")
    with PrometheusServer(served, found_by=found_by, token=token).running() as server:
        seen = await told_until_over(ray)
        states = [event for event in seen if isinstance(event, RunSeen)]
        samples = [event.at_s for event in seen if isinstance(event, RankSampled)]
        run = RunRef(states[0].run_id, "told", states[0].at_s, states[-1].at_s)
        source = PrometheusSource(
            PrometheusSettings(server.url), watched_runs(run), least_step_s=1, poll_s=1.0
        )
        loaded: dict[str, HistoryLoaded] = {}
        async with asyncio.timeout(60), aclosing(source.events()) as events:
            async for event in events:
                if isinstance(event, HistoryLoaded):
                    loaded[event.metric] = event
                if isinstance(event, SourceHealth):
                    assert event.ok
                    assert not event.absent
                    break
        names = {
            curve.labels["__name__"]
            for curve in await Prometheus(PrometheusSettings(server.url)).instant(
                'max by (__name__) (last_over_time({__name__=~"ray_cockpit_train_.*"}[5m]))'
            )
        }
    assert {"loss", "step_time_s", "samples_per_s", "cpu_percent", "memory_bytes"} <= set(loaded)
    assert 2.5 in loaded["loss"].values, "the mean of the two ranks"
    assert set(loaded["loss"].values) <= {2.0, 2.5, 3.0}, "one rank may be told of before the other"
    assert max(loaded["samples_per_s"].values) == pytest.approx(80.0, rel=0.4)
    assert samples[0] - 60 < loaded["loss"].times[0]
    assert loaded["loss"].times[-1] <= states[-1].at_s + 1
    assert "ray_cockpit_train_attempts_total" in names, "as the Grafana dashboard asks for it"


async def told_until_over(ray: Dashboard) -> list[Event]:
    seen: list[Event] = []
    async with asyncio.timeout(200), aclosing(TelemetrySource(ray).events()) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, RunSeen) and event.state.is_over:
                break
    return seen
