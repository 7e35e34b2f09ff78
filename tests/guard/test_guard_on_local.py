"""The guard restarts a real run whose rank is frozen or stuck."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpit.actions import audit
from cockpit.model.recovery import FAST
from tests.guard.hung_run import hung_run

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.alone, pytest.mark.timeout(600)]

RECOVERED_WITHIN_S = 15.0
WHOLE_WITHIN_S = 45.0


def test_frozen_rank_and_stuck_rank_are_back_within_15_s_of_detection(tmp_path: Path) -> None:
    with hung_run(tmp_path, FAST) as run:
        found = [run.hang("frozen"), run.hang("user code")]
        lines = [json.loads(line) for line in audit.path().read_text().splitlines()]
    for hang in found:
        assert hang.attempts == 1, found
        assert hang.recovered_s is not None
        assert hang.recovered_s <= RECOVERED_WITHIN_S, found
        assert hang.first_step_s is not None
        assert hang.first_step_s <= WHOLE_WITHIN_S, found
    assert "sends nothing" in found[0].verdict
    assert "`stuck` (stuck_torch.py" in found[1].verdict
    acts = [line for line in lines if line["action"] == "guard restart"]
    assert [line["result"] for line in acts] == ["done", "done"]
