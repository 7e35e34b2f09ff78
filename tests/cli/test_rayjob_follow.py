"""`cockpit launch --via rayjob -f` against an operator that takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cockpit.backends.kuberay.resources.objects import ray_job
from cockpit.backends.protocol import Backend, RayJobSpec
from cockpit.cli import main as cli
from cockpit.cli.change import rayjob as following
from cockpit.cli.options import connect
from cockpit.launch import rayjob as launching
from cockpit.model.cluster import ClusterRef
from cockpit.model.event import Event, JobsListed
from cockpit.model.run import Job, JobStatus
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.store.store import Store
from tests.simulated_backend import ScriptedBackend
from tests.sources.fake_dashboard import FakeDashboard

REPORT = "Conditions: HeadPodReady is False  ErrImagePull\nEvents: FailedToCreatePod quota\n"


@dataclass(slots=True)
class Operator(ScriptedBackend):
    """Emit each state after the client has seen the previous one."""

    fake: FakeDashboard = field(default_factory=FakeDashboard)
    name: str = ""
    described: list[str] = field(default_factory=list)
    _states: asyncio.Queue[JobsListed] = field(default_factory=asyncio.Queue)
    loop: asyncio.AbstractEventLoop | None = None
    then: list[Callable[[], None]] = field(default_factory=list)
    """What happens after long waits, before anything else."""

    async def create_rayjob(self, spec: RayJobSpec) -> str:
        self.name = spec.name
        self.show("Initializing")
        return spec.name

    def show(self, deployment: str, job_status: str = "", message: str = "", **more: Any) -> None:
        status = {"jobDeploymentStatus": deployment, "jobId": "j-1", "message": message, **more}
        if job_status:
            status["jobStatus"] = job_status
        spec = {"backoffLimit": 1} if more else {}
        job = ray_job({"metadata": {"name": self.name}, "spec": spec, "status": status})
        self._states.put_nowait(JobsListed(at_s=1.0, source="backend", jobs=(job,)))

    async def watch(self) -> AsyncIterator[Event]:
        while True:
            yield await self._states.get()

    async def describe(self, kind: str, name: str) -> str:
        self.described.append(f"{kind}/{name}")
        if self.then:
            self.then.pop(0)()
        elif len(self.described) == 1:
            self.show("Running")
        else:
            # Only now is there a submission: two reports long it was Running without one.
            assert self.fake.times_asked("/api/jobs/j-1") == 0
            self.fake.write("job-driver-j-1.log", "epoch 1\n")
            self.fake.add_job("j-1")
            self.show("Running", "RUNNING")
        return REPORT


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Operator:
    scripted = Operator(ref=ClusterRef("kuberay", "demo", "ml", "c"))
    monkeypatch.setattr(connect, "backend", lambda args, **how: scripted)
    monkeypatch.setattr(cli, "_end_politely", lambda: None)  # signals, in the main thread only
    monkeypatch.setattr("cockpit.cli.change.rayjob_start.SLOW_S", 0.1)
    monkeypatch.setattr(following, "MISSING_POLL_S", 0.05)

    async def provided(dashboard: Dashboard, spec: object) -> None:
        """The package is uploaded."""

    monkeypatch.setattr(launching, "provide", provided)
    return scripted


async def launched(operator: Operator, meanwhile: Callable[[], object] | None = None) -> int:
    """The exit code; the verb runs in a thread, as its own process would."""
    async with operator.fake.serve():
        operator.route = operator.fake.route
        argv = ["launch", "checkpointed", "--via", "rayjob", "-f"]
        running = asyncio.create_task(asyncio.to_thread(cli.main, argv))
        if meanwhile is not None:
            await operator.fake.until_asked("/api/v0/logs", 1)
            meanwhile()
        return await asyncio.wait_for(running, 90)


async def test_follow_waits_for_the_submission_and_shows_what_the_operator_reports(
    operator: Operator, capsys: pytest.CaptureFixture[str]
) -> None:
    def end() -> None:
        operator.fake.end_job("j-1")
        operator.show("Complete", "SUCCEEDED")

    assert await launched(operator, end) == 0
    out, err = capsys.readouterr()
    assert "epoch 1" in out
    lines = [line.partition(": ")[2] for line in err.splitlines() if line.startswith("RayJob ")]
    assert lines[:5] == [
        "Initializing, waiting until its RayCluster is ready",
        "no new state for 0.1 s. The operator reports:",
        "Running, waiting until the operator has submitted the job to Ray",
        "no new state for 0.1 s. The operator reports:",
        "Running",
    ]
    assert err.count("  Conditions: HeadPodReady is False  ErrImagePull\n  Events: Failed") == 2
    assert "404" not in err
    assert operator.described == [f"rayjob/{operator.name}"] * 2


async def test_follow_survives_a_head_that_no_longer_knows_the_job(
    operator: Operator, capsys: pytest.CaptureFixture[str]
) -> None:
    def head_is_replaced() -> None:
        operator.fake.jobs.clear()
        operator.fake.files.clear()
        operator.show("Failed", "FAILED", "the head was lost")

    assert await launched(operator, head_is_replaced) == 1
    err = capsys.readouterr().err
    assert "Ray does not know job j-1; waiting for the operator" in err
    assert "404" not in err
    assert err.rstrip().endswith("is FAILED: the head was lost")


@pytest.mark.parametrize("log_is_lost", [False, True])
async def test_follow_continues_with_the_retry_on_its_new_cluster(
    operator: Operator,
    log_is_lost: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = []

    def cluster_of(args: object, session: object, job: Job) -> Backend:
        clusters.append(job.cluster)
        return operator

    monkeypatch.setattr(connect, "cluster_of", cluster_of)
    if log_is_lost:
        monkeypatch.setattr(following, "LOG_END_S", 0.2)

    def first_try_fails() -> None:
        if not log_is_lost:  # otherwise the dashboard still reports it as running
            operator.fake.end_job("j-1", "FAILED")
        operator.show("Retrying", "FAILED", "exit 1", rayClusterName="own-1", failed=1)
        operator.then += [second_try]

    def second_try() -> None:
        operator.show("", jobId="", failed=1)
        operator.fake.write("job-driver-j-2.log", "epoch 2\n")
        operator.fake.add_job("j-2", "SUCCEEDED")
        second: dict[str, Any] = {"jobId": "j-2", "rayClusterName": "own-2", "failed": 1}
        operator.show("Running", "RUNNING", **second)
        operator.show("Complete", "SUCCEEDED", **second)

    assert await launched(operator, first_try_fails) == 0
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line.startswith("epoch")] == ["epoch 1", "epoch 2"]
    assert clusters == ["", "own-2"]
    assert "Retrying, try 1 of 2 failed: exit 1; waiting until its cluster is deleted" in err
    assert "FAILED" not in err
    assert ("the log of job j-1 may be incomplete" in err) is log_is_lost
    assert err.rstrip().endswith("is SUCCEEDED after 1 failed try")


def test_job_that_the_dashboard_lists_too_is_known_to_be_submitted() -> None:
    raw = {"jobDeploymentStatus": "Running", "jobId": "j-1", "jobStatus": "PENDING"}
    job = ray_job({"metadata": {"name": "r", "uid": "u"}, "spec": {}, "status": raw})
    store = Store()
    store.apply(JobsListed(at_s=1.0, source="backend", jobs=(job,)))
    listed = JobsListed(at_s=1.0, source="ray", jobs=(ray_job({"status": raw, "spec": {}}),))
    store.apply(listed)
    [known] = store.jobs.values()
    assert (known.rayjob, known.submitted, known.rayjob_uid) == ("r", True, "u")
    del raw["jobStatus"]
    assert not ray_job({"metadata": {"name": "r"}, "spec": {}, "status": raw}).submitted


def test_failed_try_of_a_job_with_retries_left_is_pending() -> None:
    raw: dict[str, Any] = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
    raw["jobId"] = "j-1"
    spec = {"backoffLimit": 2}
    store = Store()

    def shown() -> tuple[JobStatus, str]:
        job = ray_job({"metadata": {"name": "r"}, "spec": spec, "status": raw})
        store.apply(JobsListed(at_s=1.0, source="backend", jobs=(job,)))
        return store.jobs["j-1"].status, store.jobs["j-1"].tries

    assert shown() == (JobStatus.RUNNING, "try 1 of 3")
    dashboard = ray_job({"status": {"jobId": "j-1", "jobStatus": "FAILED"}, "spec": {}})
    store.apply(JobsListed(at_s=1.0, source="ray", jobs=(dashboard,)))
    assert store.jobs["j-1"].status is JobStatus.RUNNING  # the operator decides within seconds
    raw |= {"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED", "failed": 1}
    assert shown() == (JobStatus.PENDING, "try 1 of 3")
    raw |= {"jobDeploymentStatus": "Failed", "failed": 3}
    assert shown() == (JobStatus.FAILED, "try 3 of 3")
    spec.clear()
    assert shown() == (JobStatus.FAILED, "")


def test_job_that_the_operator_refuses_has_failed_with_its_message() -> None:
    why = "The RayJob spec is invalid: BackoffLimit is incompatible with ClusterSelector mode"
    raw = {"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": why}
    job = ray_job({"metadata": {"name": "r"}, "spec": {}, "status": raw})
    assert (job.status, job.message) == (JobStatus.FAILED, why)
