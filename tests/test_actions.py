"""Every change leaves a line here and a trace on the object, the failed ones too."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cockpit.actions import audit
from cockpit.actions.cluster import SHELL, ClusterActions
from cockpit.actions.jobs import JobActions
from cockpit.backends.protocol import Scaled
from cockpit.cli.screen.connection import connection
from cockpit.config import paths
from cockpit.drills.plan.plan import DrillPlan
from cockpit.launch import resubmit, submission
from cockpit.launch.rayjob import RayJobOptions
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from cockpit.model.event import Event, Notice
from cockpit.model.run import Job, JobStatus
from cockpit.model.scale import ScaleRequest
from cockpit.sources.ray.profiling import Process
from tests.simulated_backend import ScriptedBackend
from tests.sources.fake_dashboard import FakeDashboard, Fault

REF = ClusterRef("kuberay", "trainer", "ml", "prod")


@dataclass(slots=True)
class Refusing(ScriptedBackend):
    """Changes by a user without permission."""

    async def scale(self, request: ScaleRequest) -> Scaled:
        raise NotAllowedError("No.", "you may not patch rayclusters.ray.io")


class Actions(ClusterActions, JobActions):
    """All of them in one, as DrillActions has them."""


def backend() -> ScriptedBackend:
    return ScriptedBackend(ref=REF)


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in audit.path().read_text().splitlines()]


def job(name: str, **more: Any) -> Job:
    return Job(name, "python train.py", JobStatus.RUNNING, **more)


async def test_audit_line_has_user_time_cluster_change_and_result() -> None:
    cluster = backend()
    await Actions(cluster).scale(ScaleRequest("gpu", 5, max_replicas=8, remove=("w-1",)))
    [line] = lines()
    assert line.pop("at_s") > 1e9
    assert line.pop("user")
    assert line == {
        "cluster": "kuberay:prod/ml/trainer",
        "context": "prod",
        "namespace": "ml",
        "kind": "RayCluster",
        "action": "scale",
        "target": "trainer",
        "before": "gpu: 2",
        "after": "gpu: 5, max 8 without w-1",
        "result": "done",
        "error": "",
    }
    assert cluster.asked[-1] == ("announce", "scale", "RayCluster", "trainer")


async def test_failed_change_is_audited_with_its_reason_and_makes_no_event() -> None:
    cluster = Refusing(ref=REF)
    actions = Actions(cluster)
    with pytest.raises(NotAllowedError):
        await actions.scale(ScaleRequest("gpu", 5))
    [scaled] = lines()
    assert (scaled["result"], scaled["after"]) == ("failed", "gpu: replicas 5")
    assert "you may not patch" in scaled["error"]
    assert not cluster.asked


def make_unwritable() -> None:
    """Make the audit log impossible to open, for root too: its directory is a file."""
    paths.make_private(paths.state_dir().parent)
    paths.state_dir().write_text("")


async def test_change_is_refused_without_a_writable_audit_log() -> None:
    make_unwritable()
    cluster = backend()
    actions = Actions(cluster)
    changes = (
        lambda: actions.scale(ScaleRequest("gpu", 5)),
        lambda: actions.suspend(True),
        lambda: actions.cordon("node-1", True),
        lambda: actions.exec("w-1", ["ls"]),
        lambda: actions.attach("w-1", ["sh"], tty=True),
        lambda: actions.stop_job("a"),
        lambda: actions.submit(submission.bundled_spec("checkpointed")),
    )
    for change in changes:
        with pytest.raises(CockpitError, match="so nothing was changed"):
            await change()
    assert not cluster.asked


async def test_line_that_cannot_be_written_after_the_change_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Vanishing(ScriptedBackend):
        async def suspend(self, suspended: bool, *, uid: str = "") -> None:
            await ScriptedBackend.suspend(self, suspended)
            audit.path().unlink()
            paths.state_dir().rmdir()
            make_unwritable()

    cluster = Vanishing(ref=REF)
    reported: list[Event] = []
    await Actions(cluster, emit=reported.append).suspend(True)
    assert [ask[0] for ask in cluster.asked] == ["suspend", "announce"], "it counts as done"
    assert "could not be written" in caplog.text
    assert "suspend of trainer, done, is not in it" in caplog.text
    done, warning = (event for event in reported if isinstance(event, Notice))
    assert (done.warning, done.reason) == (False, "Requested")
    assert (warning.warning, warning.reason) == (True, "AuditLog"), "the screen shows it too"


async def test_each_request_carries_the_uid_of_what_was_shown() -> None:
    cluster = backend()
    known = {"train-7x": job("train-7x", rayjob="train-ab12", rayjob_uid="of-now")}
    actions = Actions(cluster, jobs=lambda: known)
    await actions.scale(ScaleRequest("gpu", 1, uid="of-the-cluster"))
    await actions.suspend(True, uid="of-the-cluster")
    await actions.stop_job("train-7x", uid="of-the-plan")
    await actions.delete_job("train-7x")
    assert cluster.uids == [
        "of-the-cluster", "of-the-cluster", "of-the-plan", "of-now"
    ]  # fmt: skip


async def test_suspending_and_cordoning_go_both_ways() -> None:
    cluster = backend()
    actions = Actions(cluster)
    await actions.suspend(True)
    await actions.suspend(False)
    await actions.cordon("node-1", True)
    await actions.cordon("node-1", False)
    assert [ask for ask in cluster.asked if ask[0] != "announce"] == [
        ("suspend", "True"),
        ("suspend", "False"),
        ("cordon", "node-1", "True"),
        ("cordon", "node-1", "False"),
    ]
    assert [(n["action"], n["kind"], n["after"]) for n in lines()] == [
        ("suspend", "RayCluster", "suspended"),
        ("unsuspend", "RayCluster", "running"),
        ("cordon", "Node", "cordoned"),
        ("uncordon", "Node", "schedulable"),
    ]


async def test_only_the_program_of_a_command_in_a_pod_is_recorded() -> None:
    cluster = backend()
    await Actions(cluster).exec("w-1", ["curl", "-H", "token: secret"])
    [line] = lines()
    assert (line["action"], line["after"]) == ("exec", "curl")
    assert "secret" not in audit.path().read_text()


async def test_stack_and_profiles_are_in_the_audit_log_as_they_pause_the_process() -> None:
    async with FakeDashboard().serve() as fake:
        fake.fail("/worker/traceback", Fault(200, "Thread 7"))
        cluster = backend()
        cluster.route = fake.route
        reported: list[Event] = []
        actions = Actions(cluster, emit=reported.append)
        assert "Thread 7" in await actions.stack(Process(42, "10.0.0.1"))
        with pytest.raises(UsageError):
            await actions.cpu_profile(Process(42, "10.0.0.1"), 0)
    assert [(line["action"], line["kind"], line["target"]) for line in lines()] == [
        ("stack", "Process", "process 42 on 10.0.0.1"),
        ("profile", "Process", "process 42 on 10.0.0.1"),
    ]
    assert [line["result"] for line in lines()] == ["done", "failed"]
    assert [one.reason for one in reported if isinstance(one, Notice)] == ["Requested", "Failed"]


async def test_actions_with_a_refusal_change_nothing_but_read_objects() -> None:
    cluster = backend()
    actions = Actions(cluster, refusal="It is read-only.")
    process = Process(42, "10.0.0.1")
    changes = (
        lambda: actions.scale(ScaleRequest("gpu", 5)),
        lambda: actions.attach("w-1", SHELL, tty=True),
        lambda: actions.exec("w-1", ["ls"]),
        lambda: actions.stack(process),
        lambda: actions.cpu_profile(process, 5),
        lambda: actions.memory_profile(process, 5),
        lambda: actions.launch("checkpointed", {}),
        lambda: actions.stop_job("a"),
    )
    for change in changes:
        with pytest.raises(NotAllowedError, match="read-only"):
            await change()
    assert not cluster.asked
    assert not audit.path().exists()
    assert "kind: pod" in await actions.manifest("pod", "w-1")
    assert "pod w-1" in await actions.describe("pod", "w-1")


def test_read_only_screen_has_actions_that_refuse() -> None:
    made = connection(backend(), read_only=True)
    try:
        assert made.session is not None
        assert made.actions is not None
        with pytest.raises(NotAllowedError, match="read-only"):
            made.session.call(made.actions.stack(Process(42, "10.0.0.1")))
        with pytest.raises(NotAllowedError, match="read-only"):
            made.actions.experiment(DrillPlan("kill", ()))
    finally:
        made.close()


@pytest.mark.parametrize("name", ["train-ab12", "train-7x"])
async def test_a_job_of_a_rayjob_is_ended_by_its_resource(name: str) -> None:
    cluster = backend()
    known = {"train-7x": job("train-7x", rayjob="train-ab12", deployment="Running")}
    actions = Actions(cluster, jobs=lambda: known)
    await actions.stop_job(name)
    await actions.delete_job(name)
    assert [ask for ask in cluster.asked if ask[0] != "announce"] == [
        ("stop_rayjob", "train-ab12"),
        ("delete_rayjob", "train-ab12"),
    ]
    assert [(line["kind"], line["before"]) for line in lines()] == [("RayJob", "Running")] * 2


async def test_any_other_job_is_ended_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str] = []

    async def stop(_: object, job_id: str) -> Job:
        stopped.append(job_id)
        return job(job_id)

    monkeypatch.setattr(submission, "stop", stop)
    cluster = backend()
    await Actions(cluster, jobs=lambda: {"a": job("a")}).stop_job("a")
    assert stopped == ["a"]
    assert [ask[0] for ask in cluster.asked] == ["announce"]


async def test_a_rayjob_on_a_cluster_of_its_own_needs_no_dashboard() -> None:
    cluster = backend()
    spec = submission.bundled_spec("checkpointed", {"epochs": "2"})
    name = await Actions(cluster).submit_rayjob(spec, RayJobOptions(own_cluster=True))
    assert [ask[0] for ask in cluster.asked] == ["create_rayjob", "announce"]
    assert lines()[0]["kind"] == "RayJob"
    assert lines()[0]["target"] == name


async def test_a_rayjob_that_ran_elsewhere_cannot_be_submitted_again() -> None:
    known = {"j": job("j", rayjob="train-ab12", cluster="train-ab12-xyz")}
    with pytest.raises(UsageError, match="cluster of its own"):
        await Actions(backend(), jobs=lambda: known).resume("train-ab12")


async def test_a_dashboard_that_is_down_is_noted_as_a_failed_launch() -> None:
    actions = Actions(backend())
    with pytest.raises(UnreachableError):
        await actions.submit(submission.bundled_spec("checkpointed"))
    assert lines()[0]["result"] == "failed"


async def test_each_resubmission_of_a_lost_job_is_in_the_audit_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = submission.script_spec(("python", "t.py", "--token", "s3same"), Path.cwd())

    async def stay(*of: object, on_submit: Callable[[str], None]) -> Job:
        on_submit("second")
        on_submit("third")
        return job("third")

    monkeypatch.setattr(resubmit, "submit_and_resubmit", stay)
    told: list[Event] = []
    await Actions(backend(), emit=told.append).submit_and_resubmit(spec, 2, print)
    assert [(line["action"], line["before"], line["after"]) for line in lines()] == [
        ("resubmit", spec.submission_id, "second: python t.py --token ***"),
        ("resubmit", "second", "third: python t.py --token ***"),
    ]
    assert [one.reason for one in told if isinstance(one, Notice)] == ["Requested", "Requested"]
