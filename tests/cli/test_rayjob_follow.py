"""`cockpit launch --via rayjob -f` against an operator that takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from cockpit.backends.kuberay.resources.objects import ray_job
from cockpit.backends.protocol import RayJobSpec
from cockpit.cli import main as cli
from cockpit.cli.change import rayjob as following
from cockpit.cli.options import connect
from cockpit.launch import rayjob as launching
from cockpit.model.cluster import ClusterRef
from cockpit.model.event import Event, JobsListed
from cockpit.model.run import JobStatus
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

    async def create_rayjob(self, spec: RayJobSpec) -> str:
        self.name = spec.name
        self.show("Initializing")
        return spec.name

    def show(self, deployment: str, job_status: str = "", message: str = "") -> None:
        status = {"jobDeploymentStatus": deployment, "jobId": "j-1", "message": message}
        if job_status:
            status["jobStatus"] = job_status
        job = ray_job({"metadata": {"name": self.name}, "spec": {}, "status": status})
        self._states.put_nowait(JobsListed(at_s=1.0, source="backend", jobs=(job,)))

    async def watch(self) -> AsyncIterator[Event]:
        while True:
            yield await self._states.get()

    async def describe(self, kind: str, name: str) -> str:
        self.described.append(f"{kind}/{name}")
        if len(self.described) == 1:
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
        return await asyncio.wait_for(running, 30)


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
        "Initializing, waiting until RayCluster of its own is ready",
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


def test_job_that_the_operator_refuses_has_failed_with_its_message() -> None:
    why = "The RayJob spec is invalid: BackoffLimit is incompatible with ClusterSelector mode"
    raw = {"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": why}
    job = ray_job({"metadata": {"name": "r"}, "spec": {}, "status": raw})
    assert (job.status, job.message) == (JobStatus.FAILED, why)
