"""`cockpit experiments` before it asks a server, and which run a name selects."""

from __future__ import annotations

import pytest

from cockpit.cli.main import main
from cockpit.cli.read.experiments import selected
from cockpit.model.error import UsageError
from cockpit.model.tracking import TrackedRun

RUNS = [
    TrackedRun("abc1", "night", "digits", "RUNNING"),
    TrackedRun("abd2", "night", "digits", "FINISHED"),
    TrackedRun("ff33", "day", "digits", "FINISHED"),
]


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
