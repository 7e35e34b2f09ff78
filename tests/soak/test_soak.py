"""The soak: `pytest -m soak tests/soak`.

An hour, or SOAK_SECONDS; SOAK_SEED repeats one. SOAK_LOG is the file of its log, for a run in the
background.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.cluster.fixtures import need_kubernetes
from tests.soak.soak import report, soak

SECONDS = float(os.environ.get("SOAK_SECONDS", "3600"))
LOG = os.environ.get("SOAK_LOG", "")
SEED = int(os.environ.get("SOAK_SEED") or random.randrange(1 << 16))


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 1_800.0)
def test_nothing_is_left_and_nothing_grows_after_an_hour_of_faults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    need_kubernetes()

    def log(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)
        if LOG:
            with Path(LOG).open("a", encoding="utf-8") as file:
                print(line, file=file)

    result = soak(SECONDS, SEED, log)
    log(report(result))
    assert not result.problems
