"""A terminal that stops reading: the UI continues, and then shows the newest state."""

from __future__ import annotations

import re
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.bench.terminal import Terminal

STALL_S = 12.0
"""Without a check, the 30 frames that Textual queues are full after about 6 s, and it blocks."""
LATEST_S = 1.0
HELD_UP_S = 2.0
"""Longer than a busy machine takes between two beats of 0.1 s."""
STEP = re.compile(r"\bstep\s+(\d{1,3}(?:,\d{3})*)")


@pytest.mark.timed
def test_a_terminal_that_stops_reading_holds_nothing_up_and_is_then_shown_the_newest(
    tmp_path: Path,
) -> None:
    beats = tmp_path / "beats"
    argv = [sys.executable, "-m", "tests.faults.heartbeat_app", str(beats)]
    with Terminal(argv, {"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("RUNNING")
        terminal.bytes_in(2.0)
        time.sleep(STALL_S)  # that is the stall
        resumed_s = time.monotonic()
        reported = [(float(at), int(step)) for at, step in map(str.split, beats.open())]
        shown = [step for _, text in terminal.texts(LATEST_S) for step in steps(text)]
    moments = [at_s for at_s, _ in reported] + [resumed_s]
    assert max(after - before for before, after in pairwise(moments)) < HELD_UP_S
    known = reported[-1][1]
    assert known > 1_500, "the run went on meanwhile"
    assert max(shown) >= known


def steps(text: str) -> list[int]:
    """Those of the Overview's line, if the text contains it completely."""
    return [int(label.replace(",", "")) for label in STEP.findall(text)]
