"""`cockpit experiments` without a server: errors, which run a name selects, and recordings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from cockpit.cli.main import main
from cockpit.cli.read.experiments import selected
from cockpit.config import paths
from cockpit.model.error import UsageError
from cockpit.model.tracking import TrackedRun
from cockpit.recorder.reading.library import Library
from cockpit.sources.mlflow.api import Found, Mlflow
from tests.recorder.test_recorder import record, script
from tests.tui.simulated import RUN

RUNS = [
    TrackedRun("abc1", "night", "digits", "RUNNING"),
    TrackedRun("abd2", "night", "digits", "FINISHED"),
    TrackedRun("ff33", "day", "digits", "FINISHED", params={"lr": "0.1"}, metrics={"steps": 7.0}),
]


def use_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """An MLflow server with RUNS."""

    async def experiments(_: Mlflow) -> dict[str, str]:
        return {"1": "digits"}

    async def runs(_: Mlflow, within: Mapping[str, str], since_s: float) -> tuple[Found, ...]:
        return tuple(Found(run, {}) for run in RUNS)

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setattr(Mlflow, "experiments", experiments)
    monkeypatch.setattr(Mlflow, "runs", runs)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("abd2", "abd2"), ("night", "abc1"), ("ff", "ff33"), ("ab12", "ff33")],
)
def test_run_is_selected_by_id_name_beginning_or_ray_trains_id(wanted: str, expected: str) -> None:
    assert selected(wanted, RUNS, {"ab12": RUNS[2]}).id == expected


@pytest.mark.parametrize(("wanted", "what"), [("ab", "Several runs"), ("x", "No run"), ("", "No")])
def test_unknown_or_ambiguous_run_is_refused_with_names(wanted: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as caught:
        selected(wanted, RUNS, {})
    assert "night" in caught.value.why


def test_missing_server_and_wrong_numbers_are_usage_errors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main(["experiments"]) == 2
    assert "There is no MLflow server." in capsys.readouterr().err
    assert main(["experiments", "a", "b", "c"]) == 2
    assert "compares two runs" in capsys.readouterr().err
    assert main(["experiments", "--limit", "0"]) == 2


def test_run_of_mlflow_is_compared_with_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    use_mlflow(monkeypatch)
    record(Library(paths.state_dir()).path_of(RUN), script(120))
    assert main(["experiments", "day", "digits", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in found["runs"]] == ["day", "digits"]
    rows = {row["name"]: row for row in [*found["parameters"], *found["metrics"]]}
    assert (rows["lr"]["first"], rows["lr"]["second"]) == ("0.1", "")
    assert rows["Ray"]["first"] == "" != rows["Ray"]["second"]
    assert rows["steps"]["difference"].startswith("+")
    assert main(["experiments", "digits"]) == 2, "one RUN is a run of MLflow"
    assert main(["experiments", "day", "nonsense"]) == 2
    error = capsys.readouterr().err
    assert "No run has the name" in error
    assert "There is no recording 'nonsense'." in error
