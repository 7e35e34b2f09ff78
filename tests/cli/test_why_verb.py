"""`cockpit why`: the verdict on the ends of a run or a job, as text and as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from cockpit.cli.options import connect
from cockpit.cli.read import why
from cockpit.model.cluster import ClusterHealth, ClusterRef, WorkerGroup
from cockpit.model.error import UnreachableError, UsageError
from cockpit.model.event import (
    ClusterSeen,
    GroupsListed,
    JobsListed,
    PodsListed,
    QueuesListed,
    SourceHealth,
)
from cockpit.model.run import Job, JobStatus
from cockpit.model.waiting import QueueEntry, QuotaUse
from cockpit.session import builder
from cockpit.store.store import Store
from tests.causes.corpus import GLOO, JOB, attempt, failed, nodes
from tests.insight.test_hang import dump, hung


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    known = Store()

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        backend = SimpleNamespace(ref=ClusterRef("local", "demo"))
        yield SimpleNamespace(store=known, clock=lambda: 101.0, add=lambda _: None, backend=backend)

    for source in why.SOURCES:
        known.apply(SourceHealth(at_s=100.0, source=source, ok=True))
    monkeypatch.setattr(connect, "session", session)
    monkeypatch.setattr(connect, "wait_for", lambda *_: None)
    monkeypatch.setattr(builder, "failures_source", lambda _: None)
    for event in attempt(f"rank 0: {GLOO}", nodes(1, "health check failed")):
        known.apply(event)
    return known


def called(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    why.arguments(parser, "why")
    return why.run(parser.parse_args(argv))


def test_text_has_cause_advice_and_victims(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called() == 0
    shown = capsys.readouterr().out
    assert "Run r (ERRORED)" in shown
    assert "Attempt 1: node lost: Rank 1 on w-1 lost its node." in shown
    assert "Confidence: high. RESTART: the ranks move to another node." in shown
    assert "Ray node: health check failed" in shown
    assert "victim, Ray Train: rank 0: lost a peer" in shown


def test_json_has_category_and_who(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("r", "-o", "json", "--fail") == 1
    [found] = json.loads(capsys.readouterr().out)["causes"]
    assert (found["category"], found["ranks"], found["pod"]) == ("node lost", [1], "w-1")
    assert (found["advice"], found["confidence"]) == ("RESTART", "high")


def test_job_without_a_run_is_explained(
    monkeypatch: pytest.MonkeyPatch, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.runs.clear()
    for event in failed("python: can't open file 'x.py': [Errno 2] No such file", code=2):
        store.apply(event)
    assert called(JOB) == 0
    assert "Job job-1: user error: The job was started in a way that cannot work." in (
        capsys.readouterr().out
    )


def test_nothing_that_ended_badly_is_no_failure(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.runs.clear()
    assert called("--fail") == 0
    assert capsys.readouterr().out == "No run or job ended badly.\n"


def test_no_bad_end_is_an_error_while_a_source_has_not_answered(store: Store) -> None:
    store.runs.clear()
    store.apply(SourceHealth(at_s=101.0, source="ray", ok=False, error="connect: timeout"))
    for argv in ((), ("other",)):
        with pytest.raises(UnreachableError, match="ray source of local:demo does not answer"):
            called(*argv)


def test_unknown_name_is_an_error(store: Store) -> None:
    with pytest.raises(UsageError, match="There is no run or job 'other'"):
        called("other")


def test_run_that_hangs_now_is_pointed_to(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]
    store.runs.clear()
    store.runs.update(hung([dump(1, 0, 2, waits=False), *waiting]).runs)
    assert called("--fail") == 0
    shown = capsys.readouterr().out
    assert "The run hangs now: Rank 1 never called all_reduce #3 of group default" in shown


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch, store: Store) -> Store:
    """A cluster without pods and a RayJob, both in a queue."""

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        ref = ClusterRef("kuberay", "demo", "ml")
        yield SimpleNamespace(store=store, backend=SimpleNamespace(ref=ref), wait=lambda *_: True)

    monkeypatch.setattr(connect, "session", session)
    quota = (QuotaUse("nvidia.com/gpu", used=4, nominal=8, room=4, most=8, asked=8),)
    entry = QueueEntry("kueue", "w", "RayJob", "train-7", "team-a", position=3, quota=quota)
    job = Job("train-7", "", JobStatus.PENDING, rayjob="train-7", queue="team-a")
    ref = ClusterRef("kuberay", "demo", "ml")
    for event in (
        ClusterSeen(at_s=1.0, source="backend", ref=ref, health=ClusterHealth.SUSPENDED),
        GroupsListed(at_s=1.0, source="backend", groups=(WorkerGroup("gpu", 2, 0, 0, 4),)),
        PodsListed(at_s=1.0, source="backend", pods=()),
        JobsListed(at_s=1.0, source="backend", jobs=(job,)),
        QueuesListed(at_s=1.0, source="backend", entries=(entry,)),
        SourceHealth(at_s=1.0, source="backend", ok=True),
    ):
        store.apply(event)
    return store


def test_object_that_waits_is_explained_stage_by_stage(
    waiting: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("job/train-7") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Job train-7: queued 3rd in team-a: 4 of 8 GPUs in use\n")
    assert "quota           blocking  4 of 8 GPUs in use, it asks for 8 GPUs.\n" in shown
    assert "To do: Wait until another workload ends" in shown


def test_object_that_waits_as_json(waiting: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("groups/gpu", "-o", "json", "--fail") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["name"], found["waits"]) == ("group", "gpu", True)
    assert found["links"][0] == {
        "stage": "suspended",
        "state": "blocking",
        "text": "spec.suspend is set.",
        "todo": "Create its pods with: cockpit unsuspend",
    }


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("pod/none", "There is no pod 'none'."),
        ("pods/none", "There is no pod 'none'."),
        ("group/none", "There is no group 'none'."),
        ("job/none", "There is no RayJob 'none'."),
        ("job/", "job needs a name."),
    ],
)
def test_object_that_does_not_exist_is_an_error(waiting: Store, what: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        called(what)
