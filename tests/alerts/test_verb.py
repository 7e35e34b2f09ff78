"""`cockpit alerts` on a run that is on paper; on a real one see tests/cli."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.alerts.settings import AlertSettings
from cockpit.cli.read import alerts
from cockpit.model.event import JobsListed
from cockpit.model.run import Job, JobStatus
from cockpit.store.store import Store
from tests.insight.training_run import Training


def arguments(*text: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    alerts.arguments(parser, "alerts")
    return parser.parse_args(text)


@pytest.fixture(autouse=True)
def nothing_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def sick() -> Training:
    training = Training(gpus=True, change=lambda s, t: replace(s, loss=math.nan, gpu_xid=31))
    training.start()
    for _ in training.go(120):
        pass
    return training


def test_a_check_reports_each_finding_what_to_try_and_how_the_run_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    training = sick()
    assert alerts._print_once(arguments(), training.store, training.clock, AlertSettings()) == 0
    out = capsys.readouterr().out
    assert "critical  loss-nan  run run-1" in out
    assert "  gpu-xid: Look at the rank's log." in out
    assert "Step time: input 3 %, compute" in out
    assert "Goodput: useful 9" in out
    assert "GPU-hours" in out


def test_json_is_a_list_of_objects_with_names(capsys: pytest.CaptureFixture[str]) -> None:
    training = sick()
    args = arguments("-o", "json", "--severity", "critical", "--fail")
    assert alerts._print_once(args, training.store, training.clock, AlertSettings()) == 1
    [reported] = json.loads(capsys.readouterr().out)
    assert reported["name"] == "loss-nan/run run-1"
    assert reported["severity"] == "critical"


def test_the_diagnosis_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    training = sick()
    args = arguments("--diagnosis")
    assert alerts._print_once(args, training.store, training.clock, AlertSettings()) == 0
    reported = json.loads(capsys.readouterr().out)
    assert set(reported) == {
        "shares",
        "goodput",
        "eta",
        "at_risk",
        "cost",
        "scaling",
        "cause",
        "gpus",
        "save_interval",
    }
    assert reported["goodput"]["wall_s"] > 120
    assert reported["at_risk"]["gpu_seconds"] > 200


def test_without_a_run_there_is_nothing_to_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert alerts._print_once(arguments("--fail"), Store(), 0.0, AlertSettings()) == 0
    assert capsys.readouterr().out == "No alerts: no training run.\n"


def test_a_job_that_failed_without_a_run_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store()
    job = Job("nowhere-1", "python nowhere.py", JobStatus.FAILED, "exit code 2", ended_s=100.0)
    store.apply(JobsListed(at_s=100.0, source="ray", jobs=(job,)))
    assert alerts._print_once(arguments("--fail"), store, 110.0, AlertSettings()) == 1
    out = capsys.readouterr().out
    assert "Job nowhere-1 failed: exit code 2" in out
    assert "cockpit logs nowhere-1" in out
