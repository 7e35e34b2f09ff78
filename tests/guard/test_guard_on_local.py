"""The guard restarts a real run whose rank is frozen or stuck."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.actions import audit
from cockpit.cli.main import main
from cockpit.model.recovery import FAST
from tests.guard.hung_run import HungRun, hung_run

pytestmark = [pytest.mark.slow, pytest.mark.ray]

RECOVERED_WITHIN_S = 60.0
WHOLE_WITHIN_S = 120.0
"""Beside other tests, on two cores. `python -m tests.bench.guard_cost` measures 15 s and 45 s."""
# A larger budget than the default: the changes of the tests before count too.
FROZEN = """
[guard]
hang = "restart"
budget = 20

[[step]]
drill = "rank-freeze"
target = "rank:1"
set = { for_s = 80 }
recover_within_s = 120
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HungRun]:
    with hung_run(tmp_path_factory.mktemp("guarded"), FAST) as run:
        yield run


def acts() -> list[str]:
    """The results of the restarts so far."""
    path = audit.path()
    text = path.read_text() if path.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    return [line["result"] for line in lines if line["action"] == "guard restart"]


@pytest.mark.timed
def test_frozen_rank_and_stuck_rank_are_named_and_restarted_once(run: HungRun) -> None:
    before = len(acts())
    found = [run.hang("frozen"), run.hang("user code")]
    for hang in found:
        assert hang.attempts == 1, found
        assert hang.recovered_s is not None
        assert hang.recovered_s <= RECOVERED_WITHIN_S, found
        assert hang.first_step_s is not None
        assert hang.first_step_s <= WHOLE_WITHIN_S, found
    assert "sends no data" in found[0].verdict
    assert "`stuck` (stuck_torch.py" in found[1].verdict
    assert acts()[before:] == ["done", "done"]


@pytest.mark.nightly  # a game day: tests/drills/test_smoke_gameday.py
def test_game_day_measures_the_recovery_that_its_guard_brings(
    run: HungRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.settle()
    before = len(acts())
    file = tmp_path / "frozen.toml"
    file.write_text(FROZEN)
    code = main(["drill", "run", str(file), "--yes", "-o", "json"])
    text = capsys.readouterr()
    assert code == 0, text.err
    assert acts()[before:] == ["done"], text.err
    [step] = json.loads(text.out)["steps"]
    [drill] = step["record"]["drills"]
    assert drill["first_step_s"] <= WHOLE_WITHIN_S, drill
