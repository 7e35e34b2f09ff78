"""The phases that only the ranks can report."""

from __future__ import annotations

import pytest

from training.telemetry.ray_train.phases import Phases
from training.telemetry.wire import AttemptEnd, Body, Notice, Phase, Report
from training.telemetry.worker.attempt_observer import NOTICE


class Clock:
    s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def phases(clock: Clock) -> Phases:
    return Phases(clock)


def phase(body: Body | None) -> str:
    if body is None:
        return ""
    assert isinstance(body, Phase)
    return body.phase


def test_a_checkpoint_is_restored_before_the_first_step_and_what_comes_later_is_no_restore(
    phases: Phases,
) -> None:
    terms = [
        (0, "restore begins"),
        (0, "restore ends"),
        (1, "report begins"),
        (0, "report begins"),
        (0, "restore begins"),
        (0, "what it will say in a later version"),
    ]
    reported = [phase(phases.note("r", 2, rank, what)) for rank, what in terms]
    assert reported == ["restore", "first step", "running", "", "", ""]


def test_a_ranks_notice_is_reported_whenever_it_comes(phases: Phases) -> None:
    phases.wrote(AttemptEnd(run="r", attempt=1))
    assert phases.note("r", 1, 3, f"{NOTICE}Damaged c is no good") == Notice(
        run="r", attempt=1, rank=3, reason="Damaged", message="c is no good"
    )


def test_report_after_the_end_of_an_attempt_begins_no_phase(phases: Phases) -> None:
    phases.wrote(AttemptEnd(run="r", attempt=1))
    assert phases.runs("r", 1) is None
    assert phases.note("r", 1, 0, "restore begins") is None


def test_a_checkpoint_takes_from_the_first_ranks_report_to_the_acceptance(
    phases: Phases, clock: Clock
) -> None:
    plain = Report(run="r", attempt=1)
    saved = Report(run="r", attempt=1, checkpoint="/c")
    for rank in (1, 0):
        phases.note("r", 1, rank, "report begins")
        clock.s += 1.0
    assert phases.wrote(plain) == plain
    phases.note("r", 1, 0, "report begins")
    clock.s += 2.5
    phases.note("r", 1, 1, "report begins")
    clock.s += 0.5
    reported = phases.wrote(saved)
    assert isinstance(reported, Report)
    assert reported.checkpoint_took_s == 3.0
    unheard = phases.wrote(saved)
    assert unheard == saved, "no rank has told of it"


def test_a_report_that_was_begun_before_the_listener_was_there_leaves_the_next_ones_right(
    phases: Phases, clock: Clock
) -> None:
    saved = Report(run="r", attempt=1, checkpoint="/c")
    assert phases.wrote(saved) == saved
    phases.note("r", 1, 0, "report begins")
    clock.s += 2.0
    reported = phases.wrote(saved)
    assert isinstance(reported, Report)
    assert reported.checkpoint_took_s == 2.0


def test_many_runs_at_once_are_each_running_once(phases: Phases) -> None:
    """A search, whose trials are runs."""
    first = [phase(phases.runs(f"r{number}", 1)) for number in range(200)]
    assert set(first) == {"running"}
    assert not any(phases.runs(f"r{number}", 1) for number in range(200))


def test_a_run_that_goes_on_is_not_forgotten_for_newer_ones(
    phases: Phases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.telemetry.ray_train.phases._ATTEMPTS_KEPT", 10)
    for number in range(50):
        phases.runs(f"short{number}", 1)
        assert phase(phases.runs("long", 1)) == ("" if number else "running")
