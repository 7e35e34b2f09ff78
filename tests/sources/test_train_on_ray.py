"""Runs on a real Ray: of drivers without telemetry, of one with it, and through Prometheus."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from cockpit.backends.local import LocalBackend
from cockpit.launch import submission
from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    Event,
    HistoryLoaded,
    RankSampled,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import JobStatus, RunState
from cockpit.model.tracking import RunRef
from cockpit.sources.prometheus.api import Prometheus
from cockpit.sources.prometheus.settings import PrometheusSettings
from cockpit.sources.prometheus.source import PrometheusSource
from cockpit.sources.ray.dashboard import Dashboard, Submission
from cockpit.sources.ray.train_runs import TrainRunsSource
from cockpit.sources.telemetry.source import TelemetrySource
from cockpit.store.store import Store
from tests.events import watched_runs
from tests.sources.prometheus_server import PrometheusServer

pytestmark = [pytest.mark.slow, pytest.mark.ray]

TRAINS = """
import os, ray.train
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

def loop(config):
    mark = config["mark"]
    if ray.train.get_context().get_world_rank() == 1 and not os.path.exists(mark):
        open(mark, "w").close()
        raise ValueError("rank 1 has had enough")

DataParallelTrainer(
    loop,
    train_loop_config={"mark": MARK},
    scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
    run_config=RunConfig(
        name="theirs", storage_path=STORAGE, failure_config=FailureConfig(max_failures=1)
    ),
).fit()
"""
WAIT_S = 600.0
TRACKED = {"RAY_TRAIN_ENABLE_STATE_TRACKING": "1", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5"}


def program(folder: Path) -> str:
    texts = {"MARK": str(folder / "failed"), "STORAGE": str(folder / "results")}
    text = TRAINS
    for label, path in texts.items():
        text = text.replace(label, repr(path))
    return text


async def watched(
    source: TrainRunsSource | TelemetrySource, until: Callable[[list[Event]], bool]
) -> list[Event]:
    seen: list[Event] = []
    async with asyncio.timeout(WAIT_S), aclosing(source.events()) as events:
        async for event in events:
            seen.append(event)
            if until(seen):
                break
    return seen


def is_over(seen: list[Event]) -> bool:
    last = seen[-1]
    return isinstance(last, RunSeen) and last.name == "theirs" and last.state.is_over


def spoken(seen: list[Event]) -> bool:
    return isinstance(seen[-1], SourceHealth)


async def ended(ray: Dashboard, job_id: str) -> JobStatus:
    async with asyncio.timeout(WAIT_S):
        while True:
            job = await ray.job(job_id)
            if job.status.is_over:
                return job.status
            await asyncio.sleep(0.2)


async def test_runs_without_telemetry_show_attempts_and_places_and_with_it_are_left_to_it(
    ray: Dashboard, tmp_path: Path
) -> None:
    entrypoint = f"python -c {shlex.quote(program(tmp_path))}"
    await ray.submit(Submission(entrypoint, "theirs-1", env_vars=TRACKED))
    seen = await watched(TrainRunsSource(ray, poll_s=0.2, awaited_s=0.0), is_over)
    store = Store()
    for event in seen:
        store.apply(event)
    [run] = store.runs.values()
    assert (run.name, run.state, run.world_size) == ("theirs", RunState.FINISHED, 2)
    assert run.submission_id == "theirs-1"
    assert next(state for _, state in run.states) is RunState.INITIALIZING
    assert sorted(run.attempts) == [1, 2]
    failed, finished = run.attempts[1], run.attempts[2]
    assert "rank 1 has had enough" in failed.reason
    assert finished.reason == "finished"
    assert failed.started_s is not None
    assert finished.started_s is not None
    assert run.started_s <= failed.started_s < (failed.ended_s or 0.0) <= finished.started_s
    [node] = [node for node in await ray.nodes() if not node.is_head]
    for attempt in (failed, finished):
        assert [place.rank for place in attempt.placements] == [0, 1]
        assert {place.node_id for place in attempt.placements} == {node.id}
        assert len({place.pid for place in attempt.placements}) == 2
    assert await ended(ray, "theirs-1") is JobStatus.SUCCEEDED

    # A late attachment reports the same, with the original times.
    later = await watched(TrainRunsSource(ray, awaited_s=0.0), spoken)
    assert [event for event in later if isinstance(event, AttemptStarted | AttemptEnded)] == [
        event for event in seen if isinstance(event, AttemptStarted | AttemptEnded)
    ]

    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "script.py").write_text(program(tmp_path))
    spec = submission.script_spec(("python", "script.py"), tmp_path / "code")
    job = await submission.launch(ray, spec)
    own = await watched(TelemetrySource(ray), is_over)
    ids = {event.run_id for event in own if isinstance(event, RunSeen) and event.name == "theirs"}
    listed = await ray.train_runs()
    assert ids == {one.id for one in listed} - {run.id}, "both have the same ids"

    quiet = await watched(TrainRunsSource(ray, lambda: ids, awaited_s=0.0), spoken)
    assert {event.run_id for event in quiet if isinstance(event, RunSeen)} == {run.id}
    assert await ended(ray, job.id) is JobStatus.SUCCEEDED


STEPS = """
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


@pytest.mark.nightly  # numbers in a real Prometheus: tests/sources/test_prometheus.py
async def test_a_runs_numbers_come_back_from_prometheus(
    ray: Dashboard, cluster: LocalBackend, tmp_path: Path
) -> None:
    assert not await ray.reaches_prometheus()
    route = await cluster.dashboard()
    code = tmp_path / "code"
    code.mkdir()
    (code / "script.py").write_text(STEPS.replace("STORAGE", repr(str(tmp_path / "results"))))
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
            if isinstance(event, RunSeen) and event.name == "told":
                seen.append(event)
                if event.state.is_over:
                    break
            elif isinstance(event, RankSampled) and seen and event.run_id == run_of(seen):
                seen.append(event)
    return seen


def run_of(seen: list[Event]) -> str:
    return next(event.run_id for event in seen if isinstance(event, RunSeen))
