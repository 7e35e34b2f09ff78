"""What is logged to MLflow; training neither waits for it nor fails with it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from cockpit.sources.mlflow.source import RUN_TAGS, SUBMISSION_TAG, context
from training.checkpoint.in_folder import FolderCheckpoints
from training.jobs.baseline import Settings
from training.loop import tracking
from training.loop.settings import TrainSettings
from training.loop.train import train
from training.loop.world import World, alone
from training.parallel.single_device import whole
from training.telemetry.worker import attempt_observer
from training.telemetry.worker.attempt_observer import AttemptObserver

SMALL = Settings(batch_size=64, width=8, epochs=2, checkpoint_every_steps=10, run_name="digits")
"""23 steps an epoch."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine imports MLflow for longer than such a run trains."""
    monkeypatch.setattr(tracking, "END_TIMEOUT_S", 300.0)


@pytest.fixture
def of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """As cockpit launches it, and as telemetry names its run."""
    for name, value in context("raysubmit_7").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(attempt_observer, "_observer", AttemptObserver(None, "ab12", 1, 0))


def run(settings: TrainSettings, checkpoints: Path) -> dict[str, Any]:
    with FolderCheckpoints(checkpoints, 0, 1) as at:
        return train(settings, alone("false"), at, whole)


def told(folder: Path) -> list[Any]:
    """MLflow's runs, the newest first."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking.address(str(folder)))
    experiment = client.get_experiment_by_name(tracking.EXPERIMENT)
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def steps(folder: Path, run_id: str, metric: str) -> list[int]:
    from mlflow import MlflowClient

    history = MlflowClient(tracking.address(str(folder))).get_metric_history(run_id, metric)
    return [item.step for item in history]


def test_a_run_that_continues_is_one_run_of_mlflows_with_settings_metrics_and_cockpits_tags(
    folder: Path, tmp_path: Path, of_a_job: None
) -> None:
    settings = replace(SMALL, mlflow=str(folder), max_steps=20)
    result = run(settings, tmp_path)
    (first,) = told(folder)
    assert (first.info.status, first.info.run_name) == ("FINISHED", "digits")
    assert first.data.params["batch_size"] == "64"
    assert first.data.metrics["accuracy"] == result["accuracy"]
    assert steps(folder, first.info.run_id, "loss") == [10, 20]
    tags = first.data.tags
    assert (tags["world_size"], tags[SUBMISSION_TAG]) == ("1", "raysubmit_7")
    assert tracking.RUN_TAG in RUN_TAGS
    assert tags[tracking.RUN_TAG] == "ab12"

    run(replace(settings, max_steps=40, clip_norm=2.0), tmp_path)
    (again,) = told(folder)
    assert again.info.run_id == first.info.run_id
    assert again.info.status == "FINISHED"
    assert steps(folder, first.info.run_id, "loss") == [10, 20, 23, 30, 40]
    changed = json.loads(again.data.tags["resumed_with"])
    assert changed == {"max_steps": "40", "clip_norm": "2.0"}
    assert again.data.params["max_steps"] == "20", "as it was when the run began"


def test_a_run_that_stops_itself_failed_and_reports_why(folder: Path, tmp_path: Path) -> None:
    stopped = run(replace(SMALL, mlflow=str(folder), learning_rate=1e30), tmp_path)["stopped"]
    failed = [one for one in told(folder) if one.info.status == "FAILED"]
    assert [one.data.tags["stopped"] for one in failed] == [stopped]


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_never_answers_costs_the_end_timeout_and_one_warning(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking, "END_TIMEOUT_S", 0.2)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    began_s = time.perf_counter()
    assert run(replace(SMALL, max_steps=30, mlflow=silent), tmp_path)["step"] == 30
    assert time.perf_counter() - began_s < 60, "no request was waited for"
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "mlflow" in line]
    assert line == f"mlflow at {silent}: it does not answer; training continues"


def test_a_server_that_is_not_there_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:s3same@{gone}")
    assert run(replace(SMALL, max_steps=30), tmp_path)["step"] == 30
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if "mlflow" in line]
    assert line.startswith(f"mlflow at http://{gone}: ")
    assert line.endswith("; training continues")
    assert "s3same" not in said, "everyone who may read the job's log sees it"


def test_password_in_a_servers_address_is_not_logged_with_the_settings() -> None:
    reporter = object.__new__(tracking._Teller)
    reporter._settings = replace(
        SMALL,
        mlflow="https://me:s3same@host/path?a=b@c",
        data_path="s3://me:s3same@bucket/data",
    )
    reporter.id = "1"
    client = Mock()
    reporter._attach(client)
    found = SimpleNamespace(data=SimpleNamespace(params={}), info=SimpleNamespace(run_id="1"))
    reporter._report_settings(client, found, {})
    found.data.params = {"mlflow": "another"}
    reporter._report_settings(client, found, {})
    logged = str([vars(each) for call in client.log_batch.mock_calls for each in logs_of(call)])
    assert "s3same" not in logged + str(client.log_dict.mock_calls)
    assert logged.count("https://host/path?a=b@c") == 2
    assert "https://host/path?a=b@c" in str(client.log_dict.mock_calls)


def logs_of(call: Any) -> list[Any]:
    """Parameters and tags of a call of `log_batch`."""
    return [*call.kwargs.get("params", ()), *call.kwargs.get("tags", ())]


def test_metrics_are_sent_again_when_the_server_recovers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    begun = MlflowClient.create_run
    refused: list[str] = []

    def refuse_once(self: MlflowClient, *args: Any, **kwargs: Any) -> Any:
        if not refused:
            refused.append("once")
            raise OSError("the server restarts")
        return begun(self, *args, **kwargs)

    monkeypatch.setattr(MlflowClient, "create_run", refuse_once)
    monkeypatch.setattr(tracking, "RETRY_S", 0.01)
    settings = replace(SMALL, mlflow=str(folder), run_name="refused")
    with tracking.Tracking(settings, alone("false")) as told_of:
        for step in (1, 2, 3):
            told_of.report({"loss": 0.5}, step)
    (found,) = [one for one in told(folder) if one.info.run_name == "refused"]
    assert refused
    assert found.info.status == "FINISHED"
    assert steps(folder, found.info.run_id, "loss") == [1, 2, 3]


def test_nothing_is_reported_without_a_server_nor_by_other_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    first = alone("false")
    second = World(1, 2, 1, first.device)
    assert tracking.Tracking(SMALL, first)._teller is None
    assert tracking.Tracking(replace(SMALL, mlflow=str(tmp_path)), second)._teller is None
