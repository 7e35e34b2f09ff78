"""Runs of drivers that carry no telemetry, on a real Ray, and of one that does."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from cockpit.backends.local import LocalBackend
from cockpit.launch import submission
from cockpit.model.event import AttemptEnded, AttemptStarted, Event, RunSeen, SourceHealth
from cockpit.model.run import JobStatus, RunState
from cockpit.sources.ray.dashboard import Dashboard, Submission
from cockpit.sources.ray.train_runs import TrainRunsSource
from cockpit.sources.telemetry.source import TelemetrySource
from cockpit.store.store import Store
from tests.local_cluster import running_cluster

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
TRACKED = {"RAY_TRAIN_ENABLE_STATE_TRACKING": "1", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5"}


def program(folder: Path) -> str:
    words = {"MARK": str(folder / "failed"), "STORAGE": str(folder / "results")}
    text = TRAINS
    for word, path in words.items():
        text = text.replace(word, repr(path))
    return text


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBackend]:
    with running_cluster("train") as backend:
        yield backend


@pytest.fixture
async def ray(cluster: LocalBackend) -> AsyncIterator[Dashboard]:
    async with Dashboard(await cluster.dashboard()) as dashboard:
        yield dashboard


async def watched(
    source: TrainRunsSource | TelemetrySource, until: Callable[[list[Event]], bool]
) -> list[Event]:
    seen: list[Event] = []
    async with asyncio.timeout(120), aclosing(source.events()) as events:
        async for event in events:
            seen.append(event)
            if until(seen):
                break
    return seen


def is_over(seen: list[Event]) -> bool:
    return isinstance(seen[-1], RunSeen) and seen[-1].state.is_over


def spoken(seen: list[Event]) -> bool:
    return isinstance(seen[-1], SourceHealth)


async def ended(ray: Dashboard, job_id: str) -> JobStatus:
    async with asyncio.timeout(60):
        while True:
            job = await ray.job(job_id)
            if job.status.is_over:
                return job.status
            await asyncio.sleep(0.2)


async def test_runs_without_telemetry_show_attempts_and_places_and_with_it_are_left_to_it(
    ray: Dashboard, tmp_path: Path
) -> None:
    [told] = await watched(TrainRunsSource(ray), spoken)
    assert isinstance(told, SourceHealth)
    assert (told.ok, told.absent) == (True, True)
    assert "RAY_TRAIN_ENABLE_STATE_TRACKING=1" in told.error

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

    # Attaching late tells the same, with the times of then.
    later = await watched(TrainRunsSource(ray, awaited_s=0.0), spoken)
    assert [event for event in later if isinstance(event, AttemptStarted | AttemptEnded)] == [
        event for event in seen if isinstance(event, AttemptStarted | AttemptEnded)
    ]

    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "script.py").write_text(program(tmp_path))
    spec = submission.script_spec(("python", "script.py"), tmp_path / "code")
    job = await submission.launch(ray, spec)
    own = await watched(TelemetrySource(ray), is_over)
    ids = {event.run_id for event in own if isinstance(event, RunSeen)}
    listed = await ray.train_runs()
    assert ids == {one.id for one in listed} - {run.id}, "both have the same ids"

    quiet = await watched(TrainRunsSource(ray, lambda: ids, awaited_s=0.0), spoken)
    assert {event.run_id for event in quiet if isinstance(event, RunSeen)} == {run.id}
    assert await ended(ray, job.id) is JobStatus.SUCCEEDED
