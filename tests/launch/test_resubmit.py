from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from cockpit.launch import resubmit, submission
from cockpit.model.cluster import DashboardRoute
from cockpit.model.run import JobStatus
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.http import AnswerError
from tests.jobs_api import JobsApi

NODE_DIED = "Job supervisor actor died: The actor died because its node has died."


class Cluster(JobsApi):
    """A dashboard with scripted events, one each time that is waited for."""

    def __init__(self, *happens: Any) -> None:
        super().__init__()
        self.happens = list(happens)
        self.is_up = True
        self.is_deleted = False
        self.takes_jobs = True
        self.told: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.is_deleted:
            removed = {"kind": "Status", "message": 'services "demo-head-svc" not found'}
            return httpx.Response(404, text=json.dumps(removed))
        if request.method == "POST" and not self.takes_jobs:
            return httpx.Response(500, text="RuntimeError: not yet")
        return super().__call__(request) if self.is_up else httpx.Response(503)

    async def sleep(self, seconds: float) -> None:
        """The next of what happens: to the cluster, or to the newest job."""
        if not self.happens:
            raise TimeoutError
        match self.happens.pop(0):
            case "down":
                self.is_up = False
            case "up":
                self.is_up = True
            case "new head":
                self.is_up, self.jobs, self.packages = True, {}, {}
            case "new head that knows the job":
                self.dead_nodes.add(self.head)
                self.is_up, self.head = True, "f" * 56
            case "takes no job":
                self.takes_jobs = False
            case "deleted":
                self.is_deleted = True
            case JobStatus() as status:
                list(self.jobs.values())[-1]["status"] = status.value
            case str() as message if message:
                list(self.jobs.values())[-1] |= {"status": "FAILED", "message": message}


async def stay(cluster: Cluster, times: int = 3) -> tuple[Any, list[str]]:
    """The job at the end, and the messages."""
    lines: list[str] = []
    spec = submission.bundled_spec("checkpointed", {"epochs": "5"})
    async with Dashboard(
        DashboardRoute("http://ray"), transport=httpx.MockTransport(cluster)
    ) as dashboard:
        await submission.launch(dashboard, spec)
        job = await resubmit.submit_and_resubmit(
            dashboard, spec, times, lines.append, on_submit=cluster.told.append, sleep=cluster.sleep
        )
    return job, lines


async def test_a_job_that_a_new_head_does_not_know_continues_under_the_same_run_name() -> None:
    cluster = Cluster("down", "down", "new head", JobStatus.RUNNING, JobStatus.SUCCEEDED)
    job, text = await stay(cluster)
    assert job.status is JobStatus.SUCCEEDED
    assert cluster.told == [job.id]
    (sent,) = cluster.jobs.values()
    first = sent["metadata"]["cockpit.resumed_from"]
    assert sent["submission_id"] != first
    assert f"--run-name={first}" in sent["entrypoint"]
    assert cluster.uploads[0] == cluster.uploads[1], "the new head has no package either"
    assert any(f"lost {first}; it continues as {sent['submission_id']}" in line for line in text)


async def test_a_driver_that_died_with_its_node_is_sent_again() -> None:
    job, _ = await stay(Cluster(NODE_DIED, JobStatus.SUCCEEDED))
    assert job.status is JobStatus.SUCCEEDED


async def test_job_that_is_listed_as_running_after_its_drivers_node_died_is_sent_again() -> None:
    cluster = Cluster("down", "new head that knows the job", "", "", JobStatus.SUCCEEDED)
    job, text = await stay(cluster)
    first, second = cluster.jobs.values()
    assert first["status"] == "RUNNING"
    assert (job.id, job.status) == (second["submission_id"], JobStatus.SUCCEEDED)
    assert sum("The cluster lost" in line for line in text) == 1


async def test_a_lost_job_is_sent_again_with_the_present_files(tmp_path: Path) -> None:
    old = tmp_path / "old.py"
    old.write_text("")
    spec = submission.script_spec(("python", "train.py"), tmp_path)
    spec = replace(spec, uploads=spec.chosen())
    cluster = Cluster(NODE_DIED, JobStatus.SUCCEEDED)
    async with cluster.dashboard() as dashboard:
        await submission.launch(dashboard, spec)
        old.unlink()
        job = await resubmit.submit_and_resubmit(
            dashboard, spec, 1, cluster.told.append, sleep=cluster.sleep
        )
    assert job.status is JobStatus.SUCCEEDED
    assert job.id != spec.submission_id


async def test_a_script_that_failed_by_itself_is_not() -> None:
    job, text = await stay(Cluster("Job entrypoint command failed with exit code 1"))
    assert job.status is JobStatus.FAILED
    assert not text


async def test_a_job_that_is_lost_too_often_is_failed() -> None:
    cluster = Cluster(NODE_DIED, NODE_DIED, NODE_DIED)
    job, text = await stay(cluster, times=2)
    assert resubmit.was_lost(job)
    assert len(cluster.jobs) == 3
    assert len(text) == 2


async def test_a_cluster_that_does_not_answer_is_waited_for_without_a_second_job() -> None:
    cluster = Cluster("down", "down", "down", "up", JobStatus.SUCCEEDED)
    job, text = await stay(cluster)
    assert job.status is JobStatus.SUCCEEDED
    assert len(cluster.jobs) == 1
    assert text == [
        "the Ray dashboard at http://ray is not ready. Waiting for it.",
        "The cluster answers again.",
    ]


async def test_a_cluster_that_was_deleted_is_not_taken_for_a_head_that_was() -> None:
    cluster = Cluster("deleted", "", "")
    with pytest.raises(TimeoutError):
        await stay(cluster)
    assert len(cluster.jobs) == 1


async def test_a_cluster_that_takes_no_job_any_more_is_given_up_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resubmit, "GIVE_UP_S", 0.0)
    with pytest.raises(AnswerError):
        await stay(Cluster("takes no job", NODE_DIED, "", ""))


async def test_job_that_runs_the_same_command_is_found_and_one_that_has_ended_is_not() -> None:
    cluster = JobsApi()
    settings = {"run_name": "mine"}
    async with cluster.dashboard() as dashboard:
        first = submission.bundled_spec("checkpointed", settings)
        await submission.launch(dashboard, first)
        again = submission.bundled_spec("checkpointed", settings)
        assert await resubmit.already_running(dashboard, again) == first
        cluster.dead_nodes.add(cluster.head)
        assert await resubmit.already_running(dashboard, again) is None, "its driver died"
        cluster.dead_nodes.clear()
        other = submission.bundled_spec("checkpointed", {"run_name": "another"})
        assert await resubmit.already_running(dashboard, other) is None
        cluster.jobs[first.submission_id]["status"] = "SUCCEEDED"
        assert await resubmit.already_running(dashboard, again) is None
