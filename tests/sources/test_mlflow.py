"""The source on a real tracking server, to which a user's script has logged its runs."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing

import pytest

from cockpit.cli.main import main
from cockpit.model.error import UsageError
from cockpit.model.event import Event, SourceHealth, TrackedRunsListed
from cockpit.model.tracking import ModelVersion, RunRef
from cockpit.sources.mlflow.api import Mlflow, Stored
from cockpit.sources.mlflow.settings import MlflowSettings
from cockpit.sources.mlflow.source import MlflowSource, context
from cockpit.sources.polling.backoff import Backoff
from tests.cli.test_report import record
from tests.events import watched_runs
from tests.report.runs import RUN
from tests.sources.mlflow_server import MlflowServer

"""The server migrates a new database, and is started again by one test."""

SCRIPT = """
import math, mlflow
mlflow.set_experiment("digits")
with mlflow.start_run(run_name="by-tag", tags={"ray_train_run_id": "ab12"}) as run:
    mlflow.log_params({"lr": 0.1, "width": 64})
    for step in range(3):
        mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
    mlflow.log_metric("odd", math.nan)
    mlflow.log_text("x", "model/weights.txt")
    mlflow.log_text("x", "notes.txt")
    print('ID', run.info.run_id)
with mlflow.start_run(run_name="by-environment") as run:
    mlflow.log_metric("odd", math.inf)
mlflow.start_run(run_name="my-train-run")
mlflow.end_run("FAILED")
mlflow.start_run(run_name="somebody-else").info
import os
os._exit(0)  # as a process that was killed: its run goes on for ever
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with MlflowServer(tmp_path_factory.mktemp("mlflow")).running() as running:
        yield running


@pytest.fixture(scope="module")
def began_s() -> float:
    return time.time()


@pytest.fixture(scope="module")
def tagged(server: MlflowServer, began_s: float) -> str:
    """The id of the run with everything; the environment of the script is a job's."""
    program = SCRIPT.replace("os._exit(0)", "import sys; sys.stdout.flush(); os._exit(0)")
    text = server.script(program, **context("raysubmit_7"))
    [line] = [line for line in text.splitlines() if line.startswith("ID ")]
    return line.split()[1]


MODEL = """
import mlflow
from mlflow import MlflowClient
with mlflow.start_run(run_name="with-model") as run:
    mlflow.log_params({"lr": 0.2})
    mlflow.log_metric("loss", 0.25)
client = MlflowClient()
client.create_registered_model("digits")
client.create_model_version("digits", run.info.artifact_uri, run.info.run_id)
client.set_registered_model_alias("digits", "best", 1)
"""


@pytest.fixture(scope="module")
def modelled(server: MlflowServer, tagged: str) -> float:
    """When a run with a registered model began, after all others."""
    began_s = time.time()
    server.script(MODEL)
    return began_s


@pytest.fixture(scope="module")
def refs(began_s: float) -> list[RunRef]:
    return [
        RunRef("ab12", "tagged", began_s),
        RunRef("cd34", "my-train-run", began_s),
        RunRef("ef56", "else", began_s, submission_id="raysubmit_7"),
    ]


class Polls:
    def __init__(self) -> None:
        self.now_s = time.time()

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0.05)


async def watched(
    source: MlflowSource, until: Callable[[list[Event]], bool], timeout_s: float = 60.0
) -> list[Event]:
    seen: list[Event] = []
    async with asyncio.timeout(timeout_s), aclosing(source.events()) as events:
        async for event in events:
            seen.append(event)
            if until(seen):
                break
    return seen


def health(count: int) -> Callable[[list[Event]], bool]:
    return lambda seen: sum(isinstance(event, SourceHealth) for event in seen) == count


def source(server: MlflowServer, runs: list[RunRef], **more: object) -> MlflowSource:
    polls = Polls()
    return MlflowSource(
        MlflowSettings(server.url),
        watched_runs(*runs),
        clock=polls,
        monotonic=polls,
        sleep=polls.sleep,
        **more,  # type: ignore[arg-type]
    )


async def test_runs_are_joined_by_tag_environment_and_name_and_reported_once(
    server: MlflowServer, tagged: str, refs: list[RunRef], began_s: float
) -> None:
    seen = await watched(source(server, refs), health(3))
    [listed] = [event for event in seen if isinstance(event, TrackedRunsListed)]
    by_name = {run.name: run for run in listed.runs}
    assert {name: run.run_id for name, run in by_name.items()} == {
        "by-tag": "ab12",
        "by-environment": "ef56",
        "my-train-run": "ef56",  # the environment is surer than a name
        "somebody-else": "ef56",
    }
    run = by_name["by-tag"]
    assert (run.id, run.experiment, run.status) == (tagged, "digits", "FINISHED")
    assert run.params == {"lr": "0.1", "width": "64"}
    assert run.metrics["loss"] == pytest.approx(1 / 3)
    assert math.isnan(run.metrics["odd"])
    assert by_name["by-environment"].metrics == {"odd": math.inf}
    assert run.artifacts == ("model/", "notes.txt")
    assert run.url.startswith(f"{server.url}/#/experiments/")
    assert run.url.endswith(f"/runs/{tagged}")
    assert run.started_s == pytest.approx(began_s, abs=120)
    assert run.ended_s is not None
    assert run.started_s is not None
    assert run.ended_s >= run.started_s
    assert by_name["my-train-run"].status == "FAILED"
    assert by_name["somebody-else"].status == "RUNNING"
    assert all(e.ok and not e.absent and not e.error for e in seen if isinstance(e, SourceHealth))


async def test_a_run_without_a_tag_is_joined_by_its_name(
    server: MlflowServer, tagged: str, refs: list[RunRef]
) -> None:
    seen = await watched(source(server, refs[:2]), health(1))
    [listed] = [event for event in seen if isinstance(event, TrackedRunsListed)]
    assert {run.name: run.run_id for run in listed.runs} == {
        "by-tag": "ab12",
        "my-train-run": "cd34",
    }


async def test_runs_are_read_page_by_page_newest_first_and_no_further_than_a_bound(
    server: MlflowServer, tagged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cockpit.sources.mlflow.api.RUNS_A_PAGE", 1)
    client = Mlflow(MlflowSettings(server.url))
    experiments = await client.experiments()
    assert set(experiments.values()) == {"Default", "digits"}
    names = [found.run.name for found in await client.runs(experiments, 0.0)]
    assert names == ["somebody-else", "my-train-run", "by-environment", "by-tag"]
    monkeypatch.setattr("cockpit.sources.mlflow.api.PAGES", 2)
    assert len(await client.runs(experiments, 0.0)) == 2
    assert await client.runs(experiments, time.time() + 3600) == ()
    await client.aclose()


async def test_only_the_experiments_that_are_named_are_looked_at(
    server: MlflowServer, tagged: str, refs: list[RunRef]
) -> None:
    settings = MlflowSettings(server.url, experiments=("Default",))
    polls = Polls()
    looking = MlflowSource(
        settings, watched_runs(*refs), clock=polls, monotonic=polls, sleep=polls.sleep
    )
    seen = await watched(looking, health(1))
    assert [type(event) for event in seen] == [SourceHealth]


async def test_artifacts_that_cannot_be_listed_leave_the_rest_as_it_is(
    server: MlflowServer, tagged: str, refs: list[RunRef]
) -> None:
    class Closed(Mlflow):
        async def artifacts(self, run_id: str) -> tuple[str, ...]:
            return await super().artifacts("no-such-run")

    settings = MlflowSettings(server.url)
    seen = await watched(source(server, refs[:1], client=Closed(settings)), health(1))
    listed, reported = seen
    assert isinstance(listed, TrackedRunsListed)
    assert [run.name for run in listed.runs] == ["by-tag"]
    assert isinstance(reported, SourceHealth)
    assert reported.ok
    assert "the artifacts of by-tag" in reported.error
    assert "no-such-run" in reported.error


async def test_model_versions_of_a_run_are_listed_with_their_aliases(
    server: MlflowServer, modelled: float
) -> None:
    seen = await watched(source(server, [RunRef("gh78", "with-model", modelled)]), health(1))
    [listed] = [event for event in seen if isinstance(event, TrackedRunsListed)]
    page = f"{server.url}/#/models/digits/versions/1"
    assert listed.runs[0].models == (ModelVersion("digits", "1", ("best",), page),)


async def test_without_a_run_to_watch_the_server_is_asked_how_it_is_and_no_more(
    server: MlflowServer,
) -> None:
    seen = await watched(source(server, []), health(2))
    assert all(isinstance(event, SourceHealth) and event.ok for event in seen)


async def test_a_server_that_dies_is_reported_and_found_again_when_it_is_back(
    server: MlflowServer, tagged: str, refs: list[RunRef]
) -> None:
    looking = source(server, refs, backoff=Backoff(first_s=1.0, most_s=4.0))
    terms: list[str] = []
    down: list[SourceHealth] = []

    def through(seen: list[Event]) -> bool:
        if not isinstance(reported := seen[-1], SourceHealth):
            return False
        text = "up" if reported.ok else "down"
        if not reported.ok:
            down.append(reported)
        if not terms or terms[-1] != text:
            terms.append(text)
            (server.stop if text == "up" else server.start)()
        return terms == ["up", "down", "up"]

    try:
        seen = await watched(looking, through, timeout_s=280)
    finally:
        server.start()
    assert f"MLflow at {server.url} cannot be reached" in down[0].error
    assert down[0].retry_at_s is not None
    assert down[0].retry_at_s > down[0].at_s
    assert sum(isinstance(event, TrackedRunsListed) for event in seen) == 1, "nothing has changed"


def test_verb_lists_shows_and_compares_the_runs_of_a_real_server(
    server: MlflowServer,
    tagged: str,
    modelled: float,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    assert main(["experiments"]) == 0
    header, newest, *_ = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["NAME", "EXPERIMENT", "STATUS"]
    assert newest.startswith("with-model")
    assert "loss=0.25" in newest
    assert "lr=0.2" in newest

    assert main(["experiments", "--experiment", "digits", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    by_name = {row["name"]: row for row in rows}
    assert {"by-tag", "by-environment", "my-train-run"} <= set(by_name)
    assert by_name["by-tag"]["metrics"]["odd"] == "nan"
    assert main(["experiments", "--experiment", "nothing"]) == 2
    assert "Known: " in capsys.readouterr().err

    assert main(["experiments", "ab12", "-o", "json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert (one["id"], one["artifacts"]) == (tagged, ["model/", "notes.txt"])
    assert main(["experiments", "with-model"]) == 0
    text = capsys.readouterr().out
    assert "model versions: 1" in text
    assert f"{server.url}/#/models/digits/versions/1" in text
    assert "best" in text

    assert main(["experiments", "by-tag", "with-model"]) == 0
    text = capsys.readouterr().out
    assert "parameters: 2 of 2 differ" in text
    assert "-0.08333" in text
    assert main(["experiments", "by-tag", "with-model", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [lr] = [row for row in found["parameters"] if row["name"] == "lr"]
    assert (lr["first"], lr["second"], lr["differs"]) == ("0.1", "0.2", True)


TAGGED = """
import sys, mlflow
with mlflow.start_run(run_name="reported", tags={"cockpit.run": sys.argv[1]}) as run:
    print("ID", run.info.run_id)
"""
READ = """
import sys, mlflow
print(mlflow.artifacts.load_text(f"runs:/{sys.argv[1]}/{sys.argv[2]}"))
"""


def test_report_of_a_recorded_run_becomes_an_artifact_of_its_mlflow_run(
    server: MlflowServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record("llama-ft")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    assert main(["report", "llama-ft", "--mlflow"]) == 1
    assert f"MLflow at {server.url} has no run for {RUN}" in capsys.readouterr().err
    said = server.script(TAGGED, RUN)
    [run_id] = [line.split()[1] for line in said.splitlines() if line.startswith("ID ")]
    assert main(["report", "llama-ft", "--mlflow", "-o", "md"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Added report.md to {server.url}/#/experiments/")
    assert run_id in out
    assert "5,100 steps" in server.script(READ, run_id, "report.md")


def test_report_is_not_added_in_read_only_mode_nor_without_a_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record("llama-ft")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main(["report", "llama-ft", "--mlflow"]) == 2
    assert "There is no MLflow server." in capsys.readouterr().err
    assert main(["report", "llama-ft", "--mlflow", "--out", "x.html"]) == 2
    capsys.readouterr()
    monkeypatch.setenv("COCKPIT_READ_ONLY", "1")
    assert main(["report", "llama-ft", "--mlflow"]) == 4
    assert "changes a run of MLflow" in capsys.readouterr().err


async def test_files_of_a_server_without_a_store_are_not_sent(server: MlflowServer) -> None:
    client = Mlflow(MlflowSettings(server.url))
    with pytest.raises(UsageError, match="does not store the files of this run itself"):
        await client.store(Stored("page", "s3://bucket/1"), "report.html", b"")
    await client.aclose()
