"""A hang of 1,000 ranks, detected by their watchdogs on a simulated clock."""

from __future__ import annotations

from cockpit.insight.hang.types import Confidence, Kind
from tests.hangs import simulated


def test_stuck_rank_of_1000_is_named_within_30_s_though_clocks_are_minutes_apart() -> None:
    found = simulated.hung(clocks_apart_s=300.0)
    assert found.verdict is not None
    assert (found.verdict.kind, found.verdict.ranks) == (Kind.LOCK, (777,))
    assert found.verdict.confidence is Confidence.HIGH
    assert found.after_s <= 30.0
    assert found.verdict.idle_s <= found.after_s
    assert "999 other ranks are in `all_reduce` (train.py:13)" in found.verdict.sentence
    assert max(found.lines) < 1_000_000
