from __future__ import annotations

from cockpit.insight.recovery.text import below_outcome, brief, outcome, sentence, so_far
from cockpit.model.drill import Drill, Instant, Milestone, Recovery

DRILL = Drill("d", "rank-freeze", "w-1", (1,), 100.0, 0.0, run_id="r")
BACK = Recovery(
    DRILL,
    detected_s=6.6,
    restarted_s=14.2,
    first_step_s=74.0,
    resumed_step=30,
    last_step=41,
)


def test_a_recovery_is_reported_with_what_it_cost() -> None:
    assert sentence(BACK) == (
        "recovered from rank-freeze of w-1: detected 6.6 s, restarted 14.2 s, "
        "first new step 1 m 14 s, 12 steps lost"
    )
    assert brief(BACK) == "recovered from rank-freeze of w-1 in 1 m 14 s, 12 steps lost"
    assert outcome(BACK) == "Recovered"


def test_a_run_that_was_not_interrupted_is_neither_recovered_nor_lost() -> None:
    back = Instant(Milestone.THROUGHPUT_BACK, 31.2, "telemetry: ranks")
    through = Recovery(DRILL, interrupted=False, instants=(back,), seconds_lost=29.0)
    assert sentence(through) == (
        "continued through rank-freeze of w-1: throughput back 31.2 s, 29.0 s lost"
    )
    assert sentence(Recovery(DRILL, interrupted=False)) == "continued through rank-freeze of w-1"
    assert outcome(through) == "Not interrupted"
    assert "not recovered" not in so_far(through, 200.0)


def test_ongoing_recovery_is_shown_with_its_duration() -> None:
    going = Recovery(DRILL, detected_s=6.6)
    assert so_far(going, 111.0) == (
        "rank-freeze of w-1: detected 6.6 s, not recovered after 11.0 s"
    )
    assert sentence(Recovery(DRILL, reason="its node died")) == (
        "rank-freeze of w-1: NOT recovered: its node died"
    )
    assert brief(going) == "the run did not recover from rank-freeze of w-1"
    assert outcome(going) == "Not recovered"


def test_without_a_run_pods_alone_are_reported() -> None:
    alone = Drill("d", "pod-kill", "w-1", (), 100.0, 0.0)
    assert "replaced after 8.0 s" in sentence(Recovery(alone, pod_ready_s=8.0))
    assert "not replaced" in sentence(Recovery(alone))
    assert so_far(Recovery(alone, pod_ready_s=8.0), 500.0) == "pod-kill of w-1: replaced 8.0 s"


def test_text_below_the_outcome_does_not_repeat_it() -> None:
    back = Instant(Milestone.THROUGHPUT_BACK, 31.2, "telemetry: ranks")
    through = Recovery(DRILL, interrupted=False, instants=(back,))
    lost = Recovery(DRILL, reason="its node died")
    alone = Drill("d", "pod-kill", "w-1", (), 100.0, 0.0)
    assert [(outcome(one), below_outcome(one)) for one in (BACK, through, lost)] == [
        ("Recovered", "from rank-freeze of w-1 in 1 m 14 s, 12 steps lost"),
        ("Not interrupted", "by rank-freeze of w-1: throughput back 31.2 s"),
        ("Not recovered", "from rank-freeze of w-1: its node died"),
    ]
    replaced = Recovery(alone, pod_ready_s=8.0)
    assert below_outcome(replaced) == sentence(replaced)
