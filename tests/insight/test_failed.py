"""Failed jobs are reported, with a run or without, until they are launched again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.insight.detectors.failed_jobs import last_line
from cockpit.insight.detectors.findings import findings
from cockpit.insight.detectors.hysteresis import AlertState
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.model.alert import Severity
from cockpit.model.event import AlertRaised, JobsListed, RunSeen, SourceHealth
from cockpit.model.run import Job, JobStatus, RunState
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from tests.insight.training_run import RUN, T0, Training, Watcher

FAILED = Job(
    "nowhere-1",
    "python nowhere.py",
    JobStatus.FAILED,
    "Job entrypoint command failed with exit code 2, last available logs:\n"
    "python: can't open file 'nowhere.py': [Errno 2] No such file or directory\n\n",
    started_s=T0,
    ended_s=T0 + 19,
)


def listed(*jobs: Job, store: Store | None = None) -> Store:
    store = Store() if store is None else store
    store.apply(JobsListed(at_s=T0 + 20, source="ray", jobs=jobs))
    return store


def told(*jobs: Job, now_s: float = T0 + 20) -> list[str]:
    return [finding.subject for finding in findings(listed(*jobs), None, now_s)]


def test_a_job_that_failed_before_it_had_a_run_is_reported() -> None:
    [finding] = findings(listed(FAILED), None, T0 + 20)
    assert (finding.kind, finding.subject) == ("failed-job", "job nowhere-1")
    assert finding.severity is Severity.WARNING
    assert finding.what == (
        "Job nowhere-1 failed, user error: python: can't open file 'nowhere.py': "
        "[Errno 2] No such file or directory"
    )
    assert finding.why.startswith("The job was started in a way that cannot work. Confidence high")
    assert finding.todo == (
        "STOP: the same code fails again: fix it first. Read its log: cockpit logs nowhere-1"
    )
    assert finding.run_id == ""


def test_failed_job_is_reported_for_half_an_hour() -> None:
    assert told(FAILED, now_s=T0 + 19 + 1_799)
    assert not told(FAILED, now_s=T0 + 19 + 1_801)
    assert not told(replace(FAILED, ended_s=None)), "nobody knows how long ago"


@pytest.mark.parametrize("status", [JobStatus.STOPPED, JobStatus.SUCCEEDED, JobStatus.RUNNING])
def test_only_a_failure_is_reported(status: JobStatus) -> None:
    assert not told(replace(FAILED, status=status))


@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.SUCCEEDED])
def test_a_job_that_was_launched_again_is_not_reported(status: JobStatus) -> None:
    started_s = None if status is JobStatus.PENDING else T0 + 60
    again = replace(FAILED, id="nowhere-2", status=status, started_s=started_s, ended_s=None)
    assert not told(FAILED, again)
    assert not told(again, FAILED), "in whatever order they are listed"
    other = replace(again, entrypoint="python other.py")
    assert told(FAILED, other) == ["job nowhere-1"]
    before = replace(again, started_s=T0 - 60, status=JobStatus.SUCCEEDED)
    assert told(FAILED, before) == ["job nowhere-1"]


def test_one_that_failed_again_is_reported_once() -> None:
    again = replace(FAILED, id="nowhere-2", started_s=T0 + 5, ended_s=T0 + 24)
    assert told(FAILED, again) == ["job nowhere-2"]


def test_bundled_jobs_go_by_their_name_and_not_by_their_flags() -> None:
    name = {"cockpit.job": "ddp"}
    first = replace(FAILED, entrypoint="python -m training.jobs.ddp --workers=9", metadata=name)
    again = replace(
        FAILED, id="ddp-2", entrypoint="python -m training.jobs.ddp", metadata=name,
        status=JobStatus.RUNNING, started_s=T0 + 60, ended_s=None,
    )  # fmt: skip
    assert not told(first, again)


def test_a_run_that_failed_with_its_job_is_reported_once() -> None:
    training = Training()
    training.start()
    watcher = Watcher(training)
    watcher.watch(30)
    training.tell(
        RunSeen(
            at_s=training.clock, source="telemetry", run_id=RUN, name="r",
            state=RunState.ERRORED, submission_id=FAILED.id, message="rank 1: out of memory",
        )
    )  # fmt: skip
    listed(FAILED, store=training.store)
    watcher.idle(60)
    assert list(training.store.alerts) == ["failed-job/job nowhere-1"]


def test_the_alert_stays_without_a_run_beside_another_and_goes_when_it_is_launched_again() -> None:
    training = Training()
    store, alarm = listed(FAILED, store=training.store), AlertState()
    last_updates: list[tuple[str, str]] = []

    def look(seconds: int, *, ray: bool = True) -> None:
        for _ in range(seconds):
            training.now_s += 1
            training.healthy()
            if ray:
                store.apply(SourceHealth(at_s=training.clock, source="ray", ok=True))
            run = current_run(store)
            found = findings(store, run, training.clock)
            for event in alarm.update(store, run, found, training.clock, Thresholds()):
                store.apply(event)
                was = event.alert.id if isinstance(event, AlertRaised) else event.alert_id
                last_updates.append((type(event).__name__, was))

    look(60)
    assert last_updates == [("AlertRaised", "failed-job/job nowhere-1")]
    training.start()
    look(60)
    training.state(RunState.FINISHED)
    look(60)
    look(60, ray=False)
    assert len(last_updates) == 1
    again = replace(FAILED, id="nowhere-2", status=JobStatus.RUNNING, started_s=training.clock)
    listed(FAILED, again, store=store)
    look(30)
    assert last_updates[1:] == [("AlertCleared", "failed-job/job nowhere-1")]


def test_the_last_line_reports_why() -> None:
    assert last_line("Traceback:\n  File\nValueError: no\n \n\x1b[0m\n") == "ValueError: no"
    assert last_line("") == ""
