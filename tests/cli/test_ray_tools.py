"""Stack, profile and timeline of a real run on a real local cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.local import GroupSpec, LocalBackend
from cockpit.cli.main import main
from cockpit.cli.options import connect
from cockpit.cli.read.timeline import trace, trace_events
from cockpit.model.event import MetricsReported
from cockpit.model.run import Checkpoint, Phase
from cockpit.session import builder
from cockpit.session.session import Session
from tests.cli.conftest import WAIT_S
from tests.events import RUN, before_the_kill, reduced, the_recovery
from tests.local_cluster import LIGHT_FLAGS, running_cluster


def test_a_run_is_reported_as_slices_that_follow_one_another() -> None:
    store = reduced([*before_the_kill(), *the_recovery()])
    run = store.runs[RUN]
    run.enter_phase(90.0, 1, Phase.FIRST_STEP)
    run.enter_phase(95.0, 1, Phase.RUNNING)
    run.take_report(
        MetricsReported(
            at_s=98.0,
            source="ray",
            run_id=RUN,
            attempt=1,
            checkpoint=Checkpoint(40, "/c/40", took_s=0.5),
        )
    )
    made = trace([], trace_events(store, run, 120.0), {"run": run.id})
    events = made["traceEvents"]
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    named = {event["name"]: event for event in events if event["ph"] != "M"}
    assert named["attempt 1"]["ts"] == 90.0e6
    assert named["attempt 1"]["dur"] == pytest.approx(16.6e6)
    assert named["attempt 1"]["args"]["reason"] == "node 127.0.1.3 died"
    assert named["attempt 2"]["dur"] == pytest.approx(6e6), "it goes on until now"
    assert (named["first step"]["ts"], named["first step"]["dur"]) == (90.0e6, 5e6)
    assert named["checkpoint 40"]["ts"] == 97.5e6
    assert named["pod-kill t-workers-2"]["ph"] == "i"
    assert next(e["args"] for e in events if e["ph"] == "C" and e["name"] == "loss")
    stamps = [event["ts"] for event in events if event["ph"] != "M"]
    assert stamps == sorted(stamps)
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")


def test_numbers_that_json_cannot_represent_are_omitted() -> None:
    store = reduced(before_the_kill())
    run = store.runs[RUN]
    run.curves.append("loss", 99.5, float("nan"))
    json.dumps(trace_events(store, run, 120.0), allow_nan=False)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBackend]:
    with running_cluster("tools", [GroupSpec("workers", replicas=2, min=0, max=2)]) as backend:
        yield backend


@pytest.fixture(scope="module")
def job(cluster: LocalBackend, tmp_path_factory: pytest.TempPathFactory) -> str:
    results = tmp_path_factory.mktemp("results")
    settings = [*LIGHT_FLAGS, f"--set=storage_path={results}", "--workers=2"]
    out = StringIO()
    with redirect_stdout(out):
        assert main(["launch", "checkpointed", *settings]) == 0
    name = out.getvalue().strip()
    with builder.session_on(cluster) as session:
        assert session.wait(
            lambda store: any((run.step or 0) > 5 for run in store.runs.values()), 240
        )
    return name


@pytest.fixture(autouse=True)
def with_ranks(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verbs wait for the ranks of the run, too."""
    wait_for = connect.wait_for

    def longer(session: Session, sources: Sequence[str], timeout_s: float = 0.0) -> None:
        wait_for(session, sources)
        if "telemetry" in sources:
            session.wait(
                lambda store: any(len(run.ranks) == 2 for run in store.runs.values()), WAIT_S
            )

    monkeypatch.setattr(connect, "wait_for", longer)


@pytest.fixture
def ask(cluster: LocalBackend, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*argv: str) -> Any:
        assert main([*argv, "-o", "json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return call


@pytest.mark.slow
@pytest.mark.ray
def test_a_ranks_process_is_looked_into(
    job: str, ask: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ranks = {row["rank"]: row for row in ask("ranks")}
    stack = ask("stack", "1")
    assert stack["rank"] == 1
    assert f"Process {stack['pid']}" in stack["stack"]
    assert "train" in stack["stack"], "the training function is in it"
    assert len(ranks) == 2

    svg = tmp_path / "rank.svg"
    found = ask("profile", "0", "--seconds", "2", "--out", str(svg))
    assert svg.read_bytes().startswith(b"<?xml")
    assert found["samples"] > 20
    assert found["pid"] != stack["pid"]
    assert 99 <= sum(hot["self_percent"] for hot in found["hot"]) <= 101 or len(found["hot"]) == 15
    assert main(["profile", "0", "--seconds", "1", "--out", str(svg), "--top", "3"]) == 0
    text = capsys.readouterr()
    assert "samples; self: percent in the function" in text.out
    assert str(svg) in text.err

    assert main(["profile", "0", "--seconds", "90", "--out", str(svg)]) == 2
    assert "between 1 and 60" in capsys.readouterr().err
    assert main(["profile", "0", "--memory", "--seconds", "1", "--out", str(svg)]) == 1
    assert "memray is not installed" in capsys.readouterr().err
    assert main(["stack", "9"]) == 2
    assert "There is no rank 9." in capsys.readouterr().err
    assert main(["stack", "one"]) == 2


@pytest.mark.slow
@pytest.mark.ray
def test_a_timeline_holds_rays_tasks_and_the_run(job: str, ask: Any, tmp_path: Path) -> None:
    out = tmp_path / "timeline.json"
    deadline = time.monotonic() + 120  # Ray sends task events in batches
    found = ask("timeline", "--out", str(out))
    while not found["tasks"]:
        assert time.monotonic() < deadline, "Ray has told of no task"
        found = ask("timeline", job, "--out", str(out))
    events = json.loads(out.read_text())["traceEvents"]
    assert len(events) == found["tasks"] + found["rows"]
    attempt = next(event for event in events if event["name"] == "attempt 1")
    tasks = [e for e in events if e.get("ph") == "X" and e["pid"] < 1_000_000]
    assert tasks
    hour_us = 3600e6
    assert all(abs(task["ts"] - attempt["ts"]) < hour_us for task in tasks), "one axis of time"
    assert main(["timeline", "nothing", "--out", str(out)]) == 2


@pytest.mark.slow
@pytest.mark.ray
def test_without_trials_one_sentence_reports_it(
    job: str, ask: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask("trials") == []
    assert main(["trials"]) == 0
    assert "No trials" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timed  # the dashboard has to answer within 10 s
def test_logs_of_ranks_driver_and_raylets_are_merged_by_time(
    job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # An idle raylet logs little but statistics, which are left out: its other lines are far up.
    assert main(["logs", "--all", job, "--lines", "2000", "-o", "jsonl"]) == 0
    text = capsys.readouterr()
    assert "Not read: rank" not in text.err, text.err
    rows = [json.loads(line) for line in text.out.splitlines()]
    names = {name for row in rows for name in row["logs"]}
    assert {"rank 0", "driver", "controller", "gcs"} <= names, "rank 1 may have logged nothing"
    assert sum(name.startswith("raylet ") for name in names) == 3
    times = [row["at_s"] for row in rows if row["at_s"] is not None]
    assert times == sorted(times)
