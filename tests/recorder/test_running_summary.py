"""The running summary of a run equals the summary of the store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.model.event import (
    AttemptStarted,
    Event,
    JobsListed,
    MetricsReported,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import Job, JobStatus, Placement, RunState
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.recording import Recording
from cockpit.recorder.writing.running_summary import RunningSummary
from cockpit.store.job_end import JobListing, LostJob
from cockpit.store.selectors import step_of
from cockpit.store.store import Store
from tests.recorder.test_recorder import record
from tests.tui.simulated import START_S


def seen(at_s: float, state: RunState, *, job_id: str = "", of: str = "train-1") -> RunSeen:
    return RunSeen(
        at_s=START_S + at_s,
        source="telemetry",
        run_id="a",
        name="digits",
        state=state,
        job_id=job_id,
        submission_id=of,
    )


def listed(at_s: float, status: JobStatus, *, source: str = "ray") -> JobsListed:
    ended_s = START_S + 9 if status.is_over else None
    job = Job("train-1", "python train.py", status, ended_s=ended_s)
    return JobsListed(at_s=START_S + at_s, source=source, jobs=(job,))


def no_jobs(at_s: float) -> JobsListed:
    return JobsListed(at_s=START_S + at_s, source="ray", jobs=())


def healthy(at_s: float, *, source: str = "ray", ok: bool = True) -> SourceHealth:
    return SourceHealth(at_s=START_S + at_s, source=source, ok=ok)


def reported(at_s: float, **metrics: float) -> MetricsReported:
    return MetricsReported(
        at_s=START_S + at_s, source="telemetry", run_id="a", attempt=1, metrics=metrics
    )


RUNS = {
    "as it was told": [seen(0, RunState.RUNNING), listed(10, JobStatus.STOPPED)],
    "the job first": [listed(10, JobStatus.STOPPED), seen(0, RunState.SCHEDULING)],
    "its states after it": [
        seen(0, RunState.INITIALIZING),
        listed(10, JobStatus.STOPPED),
        seen(1, RunState.SCHEDULING),
        seen(2, RunState.RUNNING),
    ],
    "Ray's word before the backend's": [
        listed(0, JobStatus.STOPPED, source="backend"),
        listed(0, JobStatus.RUNNING),
        seen(1, RunState.RUNNING),
    ],
    "a job that Ray lost": [
        seen(0, RunState.RUNNING),
        listed(1, JobStatus.RUNNING),
        no_jobs(30),
        healthy(35),
        healthy(41),
    ],
    "a job that Ray lost, and that was submitted again": [
        seen(0, RunState.RUNNING, job_id="01"),
        listed(1, JobStatus.RUNNING),
        no_jobs(30),
        healthy(41),
        listed(50, JobStatus.RUNNING),
        seen(60, RunState.RUNNING, job_id="02"),
        healthy(80),
    ],
    "a job that is missing for a moment": [
        seen(0, RunState.RUNNING),
        listed(1, JobStatus.RUNNING),
        no_jobs(30),
        healthy(35),
        listed(39, JobStatus.RUNNING),
        healthy(41),
    ],
    "a job that Ray does not list while it does not answer": [
        seen(0, RunState.RUNNING),
        listed(1, JobStatus.RUNNING),
        no_jobs(30),
        healthy(41, ok=False),
        healthy(42, source="telemetry"),
    ],
    "a job that the backend lists still": [
        seen(0, RunState.RUNNING),
        listed(1, JobStatus.RUNNING, source="backend"),
        listed(1, JobStatus.RUNNING),
        no_jobs(30),
        healthy(41),
    ],
    "another job of the run that is not listed yet": [
        seen(0, RunState.RUNNING, job_id="01"),
        listed(1, JobStatus.RUNNING),
        listed(10, JobStatus.STOPPED),
        seen(20, RunState.RUNNING, job_id="02", of="train-2"),
        healthy(21),
        healthy(40),
    ],
    "a job that Ray has not listed yet": [seen(0, RunState.RUNNING), no_jobs(1), healthy(59)],
    "a job that was deleted before": [seen(0, RunState.RUNNING), no_jobs(60)],
    "a run of a driver that is no job": [
        replace(seen(0, RunState.RUNNING), submission_id=""),
        no_jobs(100),
    ],
    "an earlier driver's stream later": [
        listed(10, JobStatus.STOPPED),
        seen(20, RunState.RUNNING, job_id="02", of="train-2"),
        seen(0, RunState.RUNNING, job_id="01"),
    ],
}


@pytest.mark.parametrize("events", RUNS.values(), ids=RUNS)
def test_a_run_is_over_with_its_job_in_any_order_of_events(events: list[Event]) -> None:
    running_summary, store = RunningSummary(), Store()
    markers = [running_summary.take(event, event.at_s) for event in events]
    for event in events:
        store.apply(event)
    run = store.runs["a"]
    assert running_summary.state is run.state
    assert (running_summary.ended_s is None) is (run.ended_s is None)
    assert running_summary.submission == run.submission_id
    ends = [marker for marker in markers if marker is not None and marker.kind == "end"]
    assert len(ends) == sum(state.is_over for _, state in run.states)


@pytest.mark.parametrize("seed", range(40))
def test_store_and_running_summary_agree_on_when_a_run_ended(seed: int) -> None:
    chance = random.Random(seed)
    running_summary, store = RunningSummary(), Store()
    for at_s in range(0, 120, 4):
        ended = replace(listed(at_s, JobStatus.FAILED).jobs[0], ended_s=None)
        event: Event = chance.choice(
            [
                seen(at_s, RunState.RUNNING, of=chance.choice(["train-1", "train-1", "train-2"])),
                listed(at_s, JobStatus.RUNNING),
                replace(listed(at_s, JobStatus.FAILED), jobs=(ended,)),
                *[no_jobs(at_s)] * 2,
                healthy(at_s),
                healthy(at_s, ok=False),
            ]
        )
        store.apply(event)
        running_summary.take(event, event.at_s)
        if (run := store.runs.get("a")) is not None:
            assert (running_summary.state, running_summary.ended_s) == (run.state, run.ended_s)


@pytest.mark.parametrize(("missing_s", "is_lost"), [(9.9, False), (10.0, True)])
def test_job_is_lost_once_ray_has_not_listed_it_for_ten_seconds(
    missing_s: float, is_lost: bool
) -> None:
    listing = JobListing()

    def update(at_s: float, submission_id: str, *, is_listed: bool) -> LostJob | None:
        return listing.update(at_s, submission_id, 0.0, is_listed=is_listed)

    assert update(0.0, "train-1", is_listed=False) is None, "not listed yet"
    assert update(50.0, "train-1", is_listed=True) is None
    assert update(60.0, "train-1", is_listed=False) is None
    found = update(60.0 + missing_s, "train-1", is_listed=False)
    assert (found.since_s if found else None) == (60.0 if is_lost else None)
    assert listing.update(99.0, "train-2", 40.0, is_listed=False) is None, "submitted again"


def test_run_whose_job_was_deleted_is_over_at_the_first_answer_without_it() -> None:
    store = Store()
    for event in RUNS["a job that was deleted before"]:
        store.apply(event)
    run = store.runs["a"]
    assert (run.state, run.ended_s) == (RunState.ABORTED, START_S + 60)
    assert run.message == "Ray does not list its job: it was deleted"


def test_a_run_whose_job_ray_lost_ended_in_an_error_when_the_job_was_first_missing() -> None:
    store = Store()
    for event in RUNS["a job that Ray lost"]:
        store.apply(event)
    run = store.runs["a"]
    assert (run.state, run.ended_s) == (RunState.ERRORED, START_S + 30)
    assert "no longer lists its job" in run.message


@pytest.mark.parametrize(
    "name",
    [
        "a job that Ray lost, and that was submitted again",
        "another job of the run that is not listed yet",
        "a job that Ray has not listed yet",
        "a run of a driver that is no job",
    ],
)
def test_a_run_whose_job_is_not_lost_continues(name: str) -> None:
    store = Store()
    for event in RUNS[name]:
        store.apply(event)
    run = store.runs["a"]
    assert (run.state, run.ended_s) == (RunState.RUNNING, None)


def test_a_recording_that_continues_knows_its_job_still(tmp_path: Path) -> None:
    library = Library(tmp_path)
    path = library.path_of("a")
    values = [seen(0, RunState.INITIALIZING), seen(1, RunState.SCHEDULING)]
    record(path, values)
    # Another cockpit reads the same stream again, which the file contains completely.
    record(path, [*values, listed(10, JobStatus.STOPPED)])
    with Recording.open(path) as found:
        assert found.run.state is RunState.ABORTED
        assert found.run.ended_s == START_S + 9
        assert found.run.job == "python train.py"
        assert [marker.kind for marker in found.markers] == ["end"]


def test_the_step_of_a_script_without_telemetry_is_what_it_reports(tmp_path: Path) -> None:
    library = Library(tmp_path)
    path = library.path_of("a")
    placements = (Placement(0, "node-1", "127.0.1.2", 1),)
    started = AttemptStarted(
        at_s=START_S + 1, source="telemetry", run_id="a", attempt=1, placements=placements
    )
    reports = [reported(2.0 + n, loss=1 / n, step=float(n)) for n in range(1, 47)]
    record(path, [seen(0, RunState.RUNNING), started, *reports, reported(60, step=float("nan"))])
    with Recording.open(path) as found:
        assert found.run.steps == 46
        run = found.store().runs["a"]
    run.metrics["step"] = 46.0
    assert step_of(run) == 46
