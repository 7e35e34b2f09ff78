from __future__ import annotations

from cockpit.insight.recovery.measurement import is_settled, recovery
from cockpit.model.run import RunState
from tests.events import DRILL, before_the_kill, reduced, run_seen, the_recovery


def test_a_kill_is_timed_phase_by_phase_from_the_events() -> None:
    measured = recovery(reduced([*before_the_kill(), *the_recovery()]), DRILL)
    assert measured.pod_gone_s == 0.1
    assert measured.detected_s == 6.6
    assert measured.attempt_ended_s == 6.6
    assert measured.pod_ready_s == 8.0
    assert measured.restarted_s == 14.0
    assert measured.first_step_s == 18.5
    assert measured.reason == "node 127.0.1.3 died"
    assert measured.recovered


def test_steps_lost_are_those_that_were_done_twice() -> None:
    measured = recovery(reduced([*before_the_kill(), *the_recovery()]), DRILL)
    # Attempt 1 reached step 52, attempt 2 resumed at step 41: 41 to 52 were repeated.
    assert (measured.last_step, measured.resumed_step, measured.steps_lost) == (52, 41, 12)


def test_a_recovery_that_is_under_way_has_what_happened_so_far() -> None:
    measured = recovery(reduced([*before_the_kill(), *the_recovery()[:4]]), DRILL)
    assert measured.detected_s == 6.6
    assert (measured.restarted_s, measured.first_step_s, measured.steps_lost) == (None, None, None)
    assert not measured.recovered


def test_a_run_that_ends_instead_is_settled_but_not_recovered() -> None:
    store = reduced([*before_the_kill(), *the_recovery()[:4], run_seen(110.0, RunState.ERRORED)])
    measured = recovery(store, DRILL)
    assert not measured.recovered
    assert is_settled(store, measured)


def test_a_drill_without_a_run_times_the_pods_alone() -> None:
    events = [before_the_kill()[1], *(e for e in the_recovery() if hasattr(e, "pods"))]
    store = reduced(events)
    measured = recovery(store, DRILL)
    assert measured.pod_gone_s == 0.1
    assert measured.pod_ready_s == 8.0
    assert measured.detected_s is None
    assert not is_settled(store, measured)
