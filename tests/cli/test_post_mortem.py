"""`cockpit why --recorded`: the end of a run whose cluster no longer exists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpit.cli.main import main
from cockpit.config import paths
from cockpit.recorder.reading.library import Library
from tests.recorder.test_recorder import record, script
from tests.tui.simulated import RUN, START_S


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return paths.state_dir()


def test_post_mortem_names_the_cause_the_pods_and_where_the_recording_ends(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(Library(state).path_of(RUN), script(200))
    assert main(["why", "--recorded"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Recording {RUN} of local cluster demo\nAt its end, ")
    assert "attempt 2 since " in shown
    assert "The recording ends before the run did" in shown
    assert "Attempt 1: node lost: Rank 1 was hit by the drill pod-kill." in shown
    assert "Pods that were not ready" not in shown
    assert "exit code -9 (SIGKILL)" in shown.partition("\nWarnings:\n")[2]
    assert f"cockpit report {RUN}" in shown

    assert main(["why", "digits", "--recorded", "--fail", "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["of"] == "digits"
    assert found["cluster"] == "local cluster demo"
    assert (found["is_over"], found["hang"], found["damage"]) == (False, "", "")
    assert [cause["category"] for cause in found["causes"]] == ["node lost"]
    assert found["unready_pods"] == []
    assert "demo-workers-2" in [warning["name"] for warning in found["warnings"]]


def test_a_recording_that_ends_in_a_failure_shows_the_pods_that_were_not_ready(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(Library(state).path_of(RUN), [event for event in script() if event.at_s <= START_S + 83])
    assert main(["why", "--recorded", RUN]) == 0
    shown = capsys.readouterr().out
    assert "demo-workers-2" in shown.partition("Pods that were not ready then:\n")[2]


@pytest.mark.parametrize("name", [[], ["nothing"]])
def test_without_a_recording_it_reports_what_to_do(
    name: list[str], state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", "--recorded", *name]) == 2
    shown = capsys.readouterr().err
    assert "no recording" in shown
    assert "cockpit record" in shown
