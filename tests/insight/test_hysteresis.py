"""Raise lasting findings, clear absent ones, report nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from cockpit.insight.detectors.hysteresis import REPEATED_AFTER_S, AlertState, is_at_least
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.model.alert import Finding, Severity
from cockpit.model.event import AlertCleared, AlertRaised, RunSeen, SourceHealth
from cockpit.model.run import RunState
from cockpit.store.run import RunView
from cockpit.store.store import Store

LIMITS = Thresholds()
SLOW = Finding("idle-gpu", "rank 3", Severity.WARNING, "idle 1", run_id="r")
RAISED_AFTER_S, CLEARED_AFTER_S = LIMITS.raise_after_s, LIMITS.clear_after_s


class Clock:
    """Looks second by second, and keeps the store as an app would."""

    def __init__(self) -> None:
        self.store, self.alarm, self.now_s = Store(), AlertState(), 1_000.0
        self.events: list[tuple[float, AlertRaised | AlertCleared]] = []
        self.telemetry = True
        self.run = self.seen("r", RunState.RUNNING)

    def seen(self, run_id: str, state: RunState) -> RunView:
        self.store.apply(
            RunSeen(at_s=self.now_s, source="telemetry", run_id=run_id, name="", state=state)
        )
        return self.store.runs[run_id]

    def look(self, seconds: int, *found: Finding) -> Sequence[tuple[float, str]]:
        """The alerts until then, and after how many seconds."""
        begin_s, before = self.now_s, len(self.events)
        for _ in range(seconds):
            self.now_s += 1
            if self.telemetry:
                self.store.apply(SourceHealth(at_s=self.now_s, source="telemetry", ok=True))
            for event in self.alarm.update(self.store, self.run, found, self.now_s, LIMITS):
                self.store.apply(event)
                self.events.append((self.now_s, event))
        return [(at_s - begin_s, type(event).__name__) for at_s, event in self.events[before:]]


def test_a_finding_is_raised_once_it_lasted_and_cleared_once_it_no_longer_exists() -> None:
    clock = Clock()
    assert clock.look(60, SLOW) == [(RAISED_AFTER_S + 1, "AlertRaised")]
    assert list(clock.store.alerts) == ["idle-gpu/rank 3"]
    assert clock.look(60) == [(CLEARED_AFTER_S, "AlertCleared")]
    assert clock.look(60) == []


def test_short_finding_raises_no_alert() -> None:
    clock = Clock()
    for _ in range(20):
        assert clock.look(int(RAISED_AFTER_S) - 2, SLOW) == []
        assert clock.look(5) == []


def test_flickering_finding_is_raised_once_and_not_cleared() -> None:
    clock = Clock()
    for _ in range(60):
        clock.look(2, SLOW)
        clock.look(1)
    assert [type(event) for _, event in clock.events] == [AlertRaised]


def test_a_change_of_severity_is_reported_at_once_and_new_numbers_now_and_then() -> None:
    clock = Clock()
    clock.look(20, SLOW)
    assert clock.look(3, replace(SLOW, severity=Severity.CRITICAL)) == [(1, "AlertRaised")]
    reported = [clock.look(1, replace(SLOW, what=f"idle {n}")) for n in range(60)]
    assert 2 <= sum(map(len, reported)) <= 60 // REPEATED_AFTER_S + 1
    alert = clock.store.alerts["idle-gpu/rank 3"].alert
    assert alert.raised_s == clock.events[1][0], "it counts as raised when it got worse"


def test_a_stale_source_neither_raises_nor_clears() -> None:
    clock = Clock()
    clock.look(20, SLOW)
    clock.telemetry = False
    assert clock.look(120) == []
    clock.telemetry = True
    assert clock.look(60) == [(CLEARED_AFTER_S, "AlertCleared")]


def test_condition_from_before_a_gap_starts_again_after_it() -> None:
    clock = Clock()
    clock.look(int(RAISED_AFTER_S) - 2, SLOW)
    clock.telemetry = False
    assert clock.look(60) == []
    clock.telemetry = True
    assert clock.look(30, SLOW) == [(RAISED_AFTER_S + 1, "AlertRaised")]


@pytest.mark.parametrize("state", [RunState.FINISHED, RunState.ERRORED, RunState.ABORTED])
def test_nothing_is_raised_of_a_run_that_is_over(state: RunState) -> None:
    clock = Clock()
    clock.look(20, SLOW)
    clock.now_s += 1
    clock.seen("r", state)
    assert clock.look(60, SLOW) == [(1, "AlertCleared")]


def test_the_next_run_clears_the_alerts_of_the_one_before() -> None:
    clock = Clock()
    clock.look(20, SLOW)
    clock.run = clock.seen("r2", RunState.RUNNING)
    assert clock.look(1) == [(1, "AlertCleared")]
    assert clock.look(30, replace(SLOW, run_id="r2")) == [(RAISED_AFTER_S + 1, "AlertRaised")]


def test_severities_have_an_order() -> None:
    assert is_at_least(Severity.CRITICAL, Severity.WARNING)
    assert is_at_least(Severity.INFO, Severity.INFO)
    assert not is_at_least(Severity.INFO, Severity.WARNING)


def test_severity_that_changes_at_each_look_is_reported_once() -> None:
    clock = Clock()
    worse = replace(SLOW, severity=Severity.CRITICAL)
    clock.look(20, SLOW)
    for _ in range(60):
        clock.look(1, worse)
        clock.look(1, SLOW)
    assert [type(event) for _, event in clock.events] == [AlertRaised] * 2
    assert clock.look(60, SLOW) == [(CLEARED_AFTER_S - 1, "AlertRaised")]
    assert clock.store.alerts["idle-gpu/rank 3"].alert.finding.severity is Severity.WARNING


def test_clock_that_is_set_back_delays_no_alert() -> None:
    clock = Clock()
    clock.look(3, SLOW)
    clock.now_s -= 3_600
    assert clock.look(30, SLOW) == [(RAISED_AFTER_S + 1, "AlertRaised")]
    clock.now_s -= 3_600
    assert [kind for _, kind in clock.look(60)] == ["AlertCleared"]
