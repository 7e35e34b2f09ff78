from __future__ import annotations

from cockpit.store.run import AttemptView, RunView
from cockpit.tui.rows.text import attempt_end, clock, last_failed_attempt


def test_an_attempt_end_has_one_text_with_and_without_its_time_and_reason() -> None:
    assert attempt_end("worker\n died") == "ended: worker died"
    assert attempt_end("worker died", 0.0) == f"ended at {clock(0.0)}: worker died"
    assert attempt_end("") == "ended: finished"


def test_the_last_failed_attempt_is_the_newest_one_with_a_reason() -> None:
    run = RunView("run-1")
    assert last_failed_attempt(run) is None
    run.attempts = {
        3: AttemptView(3),
        2: AttemptView(2, reason="two"),
        1: AttemptView(1, reason="one"),
    }
    assert last_failed_attempt(run) is run.attempts[2]
