"""What a run does now, in a sentence."""

from __future__ import annotations

import time
from collections.abc import Sequence

from cockpit.insight.causes.verdict import causes_of_run
from cockpit.insight.metrics.live_line import live_line
from cockpit.insight.metrics.stall import Stall
from cockpit.model.event import Event, PhaseEntered, RunSeen
from cockpit.model.run import Phase, RunState
from tests.events import RUN, before_the_kill, reduced, run_seen, the_recovery


def line(events: Sequence[Event], now_s: float, stalled: Stall | None = None) -> str:
    store = reduced(events)
    run = store.runs[RUN]
    cause = next(reversed(causes_of_run(store, run)), None)
    return live_line(run, now_s, cause, stalled).text


def clock(at_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(at_s))


def test_training_is_described_by_its_numbers() -> None:
    assert line(before_the_kill(), 99.5) == "Training: step 50, 2 ranks, 200 samples/s"
    assert line(before_the_kill(), 111.0).endswith("200 samples/s, no telemetry for 12 s")


def test_a_later_attempt_names_the_verdict_on_the_one_before() -> None:
    text = line([*before_the_kill(), *the_recovery()], 119.0)
    assert text.startswith("Training: step 45, 2 ranks, ")
    assert f"; attempt 2 since {clock(114.0)} (rank 1 was hit by the drill pod-kill)" in text


def test_a_phase_is_described_with_its_age() -> None:
    events: list[Event] = [*before_the_kill(), *the_recovery()[:5]]
    events.append(
        PhaseEntered(at_s=107.0, source="telemetry", run_id=RUN, attempt=2, phase=Phase.SCHEDULING)
    )
    text = line(events, 110.0)
    assert text.startswith(
        f"Waiting for resources for 3 s; attempt 1 ended at {clock(106.6)} (rank 1 "
    )


def test_a_state_without_phases_is_named() -> None:
    assert line([run_seen(1.0, RunState.SHUTTING_DOWN)], 2.0) == "Shutting down"
    assert line([run_seen(1.0, RunState.RUNNING)], 2.0) == "Training: 2 ranks"


def test_a_stall_comes_before_all_else() -> None:
    text = line(before_the_kill(), 400.0, Stall(since_s=100.0, bound_s=30.0))
    assert text == "No progress for 5 m"


def test_an_end_names_the_result() -> None:
    finished = [*before_the_kill(), *the_recovery(), run_seen(130.0, RunState.FINISHED)]
    text = line(finished, 140.0)
    assert text.startswith("Finished")
    assert text.endswith("after 2 attempts: step 45")
    failed = RunSeen(
        at_s=130.0,
        source="telemetry",
        run_id=RUN,
        name="demo",
        state=RunState.ERRORED,
        message="ValueError: no such file",
    )
    store = reduced([run_seen(80.0, RunState.RUNNING), failed])
    found = live_line(store.runs[RUN], 131.0)
    assert found.text.startswith("Failed")
    assert found.text.endswith("ValueError: no such file")
    assert not found.is_well
