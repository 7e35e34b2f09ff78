"""Each kind of fault as its sources report it, and the measurement."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cockpit.insight.recovery.measurement import Reading, is_complete, is_settled, recovery
from cockpit.model.cluster import PodPhase
from cockpit.model.drill import Drill, Milestone, Recovery, Stage
from cockpit.model.event import JobsListed, MetricsReported, RunSeen
from cockpit.model.run import Job, JobStatus, RunState
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.overview.run_panel import live
from tests.insight.incident import RUN, Incident, T, falling

M = Milestone


def reached(measured: Recovery) -> dict[Milestone, float]:
    return {instant.milestone: instant.after_s for instant in measured.instants}


def source_of(measured: Recovery, milestone: Milestone) -> str:
    return next(i.source for i in measured.instants if i.milestone is milestone)


def killed_pod(incident: Incident, *, trained_s: float = 60.0) -> Drill:
    """A checkpoint 5 s before; the pod of rank 1 is deleted and replaced, the run recovers."""
    incident.begin()
    drill = incident.inject("pod-kill", 1, ranks=(1,))
    incident.saved = incident.step - 50
    incident.wait(0.5)
    incident.lose(1)
    incident.wait(1.5)
    incident.list_nodes(0, dead=(1,))
    incident.wait(1.0)
    incident.down("rank 1: its node died", "max_preemption_failures")
    incident.add(2, ready=False)
    incident.wait(5.0)
    incident.add(2, ready=True)
    incident.restart(0, 2)
    incident.train(trained_s)
    return drill


def test_the_kill_of_a_pod_is_timed_from_the_symptom_to_the_throughput() -> None:
    incident = Incident(gpus=True)
    measured = recovery(incident.store, killed_pod(incident))
    assert reached(measured) == {
        M.INJECTED: 0.0,
        M.STOPPED: 0.0,
        M.SYMPTOM: 0.5,
        M.DETECTED: 2.0,
        M.ATTEMPT_ENDED: 3.0,
        M.POD_REPLACED: 3.0,
        M.POD_READY: 8.0,
        M.WORKERS_STARTED: 8.0,
        M.PROCESS_GROUP: 10.0,
        M.RESTORED: 11.0,
        M.FIRST_STEP: 12.0,
        M.THROUGHPUT_BACK: 13.0,
        M.CAUGHT_UP: pytest.approx(16.9, abs=0.2),
    }
    assert source_of(measured, M.SYMPTOM) == "backend"
    assert source_of(measured, M.DETECTED) == "ray"
    assert source_of(measured, M.ATTEMPT_ENDED) == "telemetry: controller"
    assert source_of(measured, M.RESTORED) == "telemetry: rank 0"
    assert source_of(measured, M.CAUGHT_UP) == "telemetry: ranks"


def test_cost_of_a_kill_is_in_steps_seconds_and_gpu_seconds() -> None:
    incident = Incident(gpus=True)
    measured = recovery(incident.store, killed_pod(incident))
    caught_up_s = reached(measured)[M.CAUGHT_UP]
    assert (measured.last_step, measured.resumed_step, measured.steps_lost) == (600, 551, 50)
    assert measured.interrupted
    assert measured.seconds_lost == pytest.approx(caught_up_s, abs=0.01)
    assert measured.gpu_seconds_lost == pytest.approx(2 * caught_up_s, abs=0.01)
    assert measured.goodput_percent == 0.0, "up to there nothing new was done"
    assert (measured.restarts, measured.budget) == (1, "max_preemption_failures")
    assert measured.continuity is not None
    assert measured.continuity.continuous
    assert measured.missing_data == ()


def test_a_recovery_is_complete_once_the_throughput_is_back_for_a_while() -> None:
    incident = Incident()
    drill = killed_pod(incident, trained_s=3.0)
    before = Reading()
    assert recovery(incident.store, drill).recovered
    assert not is_complete(incident.store, drill, before, incident.clock)
    incident.train(12.0)
    assert is_complete(incident.store, drill, before, incident.clock)


def test_measurement_ends_without_a_missing_milestone() -> None:
    incident = Incident()
    drill = killed_pod(incident, trained_s=0.0)
    incident.train(30.0, speed=0.5)
    assert M.CAUGHT_UP in reached(recovery(incident.store, drill))
    assert M.THROUGHPUT_BACK not in reached(recovery(incident.store, drill))
    assert not is_complete(incident.store, drill, Reading(), incident.clock)
    incident.train(90.0, speed=0.5)
    assert is_complete(incident.store, drill, Reading(), incident.clock)


def test_the_death_of_a_rank_alone_has_no_pods_to_wait_for() -> None:
    incident = Incident().begin()
    incident.save()
    drill = incident.inject("rank-kill", 1, ranks=(1,))
    incident.wait(1.9)
    incident.down("rank 1: its process died")
    incident.wait(4.0)
    incident.restart(0, 1)
    incident.train(20.0)
    measured = recovery(incident.store, drill)
    reported = reached(measured)
    assert M.POD_REPLACED not in reported
    assert M.POD_READY not in reported
    assert (reported[M.SYMPTOM], reported[M.DETECTED]) == (1.9, 1.9)
    assert reported[M.CAUGHT_UP] == reported[M.FIRST_STEP], "nothing was lost"
    assert measured.steps_lost == 0
    assert measured.seconds_lost == pytest.approx(reported[M.FIRST_STEP] - 0.1, abs=0.01)
    assert is_complete(incident.store, drill, Reading(), incident.clock)


def rayjob(incident: Incident, job_id: str, status: JobStatus, failed: int = 0) -> None:
    """The state of RayJob `train`, which has one retry; each try has another job id."""
    job = Job(job_id, "", status, rayjob="train", rayjob_uid="u", retries=1, failed=failed)
    incident.tell(JobsListed(at_s=incident.clock, source="backend", jobs=(job,)))


def submitted(incident: Incident, job_id: str) -> None:
    seen = RunSeen(
        at_s=incident.there, source="telemetry", run_id=RUN, name="r", state=RunState.RUNNING
    )
    incident.tell(replace(seen, submission_id=job_id))


@pytest.mark.parametrize("second_try", [True, False])
def test_a_kill_is_measured_to_the_first_step_of_the_retry_of_its_rayjob(second_try: bool) -> None:
    incident = Incident().begin()
    incident.save()
    rayjob(incident, "j-1", JobStatus.RUNNING)
    submitted(incident, "j-1")
    drill = incident.inject("rank-kill", 1, ranks=(1,))
    incident.wait(2.0)
    incident.down("rank 1: its process died")
    incident.state(RunState.ERRORED)  # KubeRay has not decided yet whether it tries again
    assert not is_complete(incident.store, drill, Reading(), incident.clock)
    rayjob(incident, "train", JobStatus.PENDING, failed=1)
    incident.wait(90.0)
    assert not is_complete(incident.store, drill, Reading(), incident.clock)
    assert not is_settled(incident.store, recovery(incident.store, drill))
    state = ViewState(incident.store, incident.clock)
    line = live(state, incident.store.runs[RUN], None, None, width=200)
    assert line.plain.endswith("; try 2 of 2 of RayJob train")
    if second_try:
        rayjob(incident, "j-2", JobStatus.RUNNING, failed=1)
        submitted(incident, "j-2")
        incident.restart(0, 1)
        incident.train(20.0)
    else:
        rayjob(incident, "j-2", JobStatus.FAILED, failed=2)
    measured = recovery(incident.store, drill)
    assert measured.recovered is second_try
    assert measured.first_step_s == (96.0 if second_try else None)
    assert is_settled(incident.store, measured)
    assert is_complete(incident.store, drill, Reading(), incident.clock)


def frozen(incident: Incident, seconds: float) -> Drill:
    """Rank 1 makes no progress, and with it the run, while the fault lasts."""
    incident.begin()
    drill = incident.inject("rank-freeze", 1, ranks=(1,), id="drill-1.1")
    incident.stage(drill, Stage.DURING)
    incident.wait(seconds)
    return drill


def test_a_freeze_that_ends_in_time_interrupts_nothing_and_costs_its_time() -> None:
    incident = Incident()
    drill = frozen(incident, 20.0)
    measured = recovery(incident.store, drill)
    assert measured.interrupted is None
    assert reached(measured)[M.SYMPTOM] == 5.0, "as long as a silence must be to be one"
    assert source_of(measured, M.SYMPTOM) == "telemetry: ranks"
    incident.stage(drill, Stage.RECOVERING)
    incident.train(10.0)
    assert recovery(incident.store, drill).interrupted is None, "not clear yet"
    incident.train(20.0)
    measured = recovery(incident.store, drill)
    assert measured.interrupted is False
    assert not measured.recovered
    assert reached(measured)[M.STOPPED] == 0.0
    assert reached(measured)[M.THROUGHPUT_BACK] == 21.0
    assert measured.seconds_lost == pytest.approx(20.0, abs=0.5)
    assert measured.goodput_percent == pytest.approx(5.0, abs=3)
    assert (measured.steps_lost, measured.restarts, measured.budget) == (None, 0, "")
    assert is_complete(incident.store, drill, Reading(), incident.clock)


def test_a_freeze_that_ray_ends_is_a_restart() -> None:
    incident = Incident()
    drill = frozen(incident, 25.0)
    incident.down("rank 1: did not answer for 25 s")
    incident.stage(drill, Stage.RECOVERING)
    incident.wait(3.0)
    incident.restart(0, 1)
    incident.train(40.0)
    measured = recovery(incident.store, drill)
    assert measured.interrupted
    reported = reached(measured)
    assert (reported[M.SYMPTOM], reported[M.DETECTED], reported[M.ATTEMPT_ENDED]) == (
        5.0,
        25.0,
        25.0,
    )
    assert measured.budget == "max_failures"


def test_a_slow_rank_has_its_symptom_in_the_throughput() -> None:
    incident = Incident().begin()
    drill = incident.inject("rank-slow", 1, ranks=(1,), id="drill-1.1")
    incident.stage(drill, Stage.DURING)
    incident.train(20.0, speed=0.5)
    incident.stage(drill, Stage.RECOVERING)
    incident.train(30.0)
    measured = recovery(incident.store, drill)
    assert measured.interrupted is False
    assert reached(measured) == {M.INJECTED: 0.0, M.SYMPTOM: 1.0, M.THROUGHPUT_BACK: 21.0}
    assert measured.seconds_lost == pytest.approx(10.0, abs=0.5), "half the speed for 20 s"
    assert measured.continuity is not None
    assert measured.continuity.continuous


def test_fault_without_effect_is_reported_after_a_quiet_period() -> None:
    incident = Incident().begin()
    drill = incident.inject("dashboard-kill", id="drill-1.1")
    incident.stage(drill, Stage.RECOVERING)
    incident.train(14.0)
    assert recovery(incident.store, drill).interrupted is None
    incident.train(4.0)
    measured = recovery(incident.store, drill)
    assert measured.interrupted is False
    assert measured.seconds_lost == pytest.approx(0.0, abs=0.2)


def test_a_run_that_stays_slower_continued_and_is_waited_for_no_longer_than_need_be() -> None:
    incident = Incident().begin()
    drill = incident.inject("storage-slow", id="drill-1.1")
    incident.stage(drill, Stage.DURING)
    incident.train(3.0, speed=0.5)
    incident.stage(drill, Stage.RECOVERING)
    incident.train(55.0, speed=0.9)
    assert recovery(incident.store, drill).interrupted is None
    incident.train(10.0, speed=0.9)
    measured = recovery(incident.store, drill)
    assert measured.interrupted is False
    assert M.THROUGHPUT_BACK not in reached(measured)
    assert is_complete(incident.store, drill, Reading(), incident.clock)
    incident.train(20.0)
    assert reached(recovery(incident.store, drill))[M.THROUGHPUT_BACK] == pytest.approx(69, abs=1)


def test_a_rank_that_stays_stale_is_not_called_slower() -> None:
    incident = Incident()
    drill = frozen(incident, 90.0)
    incident.stage(drill, Stage.RECOVERING)
    incident.wait(90.0)
    assert recovery(incident.store, drill).interrupted is None


def test_an_attempt_that_ends_much_later_is_not_this_drills() -> None:
    incident = Incident().begin()
    incident.save()
    drill = incident.inject("dashboard-kill")
    incident.train(200.0)
    incident.down("rank 0: ValueError")
    incident.wait(3.0)
    incident.restart(0, 1)
    incident.train(20.0)
    measured = recovery(incident.store, drill)
    assert measured.interrupted is False
    assert (measured.attempt_ended_s, measured.first_step_s, measured.reason) == (None, None, "")


def test_a_pod_that_drains_while_training_continues_is_not_called_well() -> None:
    incident = Incident().begin()
    incident.save()
    drill = incident.inject("pod-delete", 1, ranks=(1,))
    incident.pods[1] = replace(incident.pods[1], phase=PodPhase.TERMINATING)
    incident.list_pods()
    incident.state(RunState.PREEMPTING)
    incident.train(29.0)
    assert recovery(incident.store, drill).interrupted is None
    incident.lose(1)
    incident.down("preempted", "max_preemption_failures")
    incident.add(2, ready=True)
    incident.wait(2.0)
    incident.restart(0, 2)
    incident.train(60.0)
    measured = recovery(incident.store, drill)
    reported = reached(measured)
    assert (reported[M.SYMPTOM], reported[M.STOPPED], reported[M.ATTEMPT_ENDED]) == (
        0.0,
        29.0,
        29.0,
    )
    assert measured.seconds_lost == pytest.approx(reported[M.CAUGHT_UP] - 29.0, abs=0.01)
    assert measured.goodput_percent is not None
    assert measured.goodput_percent > 20.0


def test_two_pods_at_once_share_one_recovery_that_ends_with_the_last_of_them() -> None:
    incident = Incident(ranks=3).begin()
    incident.save()
    one = incident.inject("pod-kill", 1, ranks=(1,), id="drill-1.1")
    incident.wait(0.5)
    two = incident.inject("pod-kill", 2, ranks=(2,), id="drill-1.2")
    incident.lose(1)
    incident.lose(2)
    incident.wait(2.5)
    incident.down("ranks 1, 2: its node died")
    incident.add(3, ready=True)
    incident.wait(2.0)
    incident.add(4, ready=True)
    incident.wait(1.0)
    incident.restart(0, 3, 4)
    incident.train(30.0)
    first, second = (recovery(incident.store, drill) for drill in (one, two))
    assert first.first_step_s == pytest.approx((second.first_step_s or 0) + 0.5)
    assert (first.pod_ready_s, second.pod_ready_s) == (3.0, 4.5)
    assert first.restarts == second.restarts == 1
    assert M.THROUGHPUT_BACK in reached(first)
    assert first.missing_data == ()


def test_a_fault_in_anothers_recovery_gets_none_of_its_milestones() -> None:
    incident = Incident().begin()
    incident.save()
    first = incident.inject("rank-kill", 1, ranks=(1,), id="drill-1")
    incident.wait(2.0)
    incident.down("rank 1: its process died")
    incident.wait(1.0)
    second = incident.inject("rank-kill", 0, ranks=(0,), id="drill-2")
    incident.wait(3.0)
    incident.restart(0, 1)
    incident.train(2.0)
    reported = recovery(incident.store, second)
    assert reported.interrupted is None
    assert (reported.detected_s, reported.restarted_s, reported.first_step_s) == (None, None, None)
    incident.down("rank 0: its process died")
    incident.wait(2.0)
    incident.restart(0, 1)
    incident.train(30.0)
    reported = recovery(incident.store, second)
    assert reported.interrupted
    assert reported.attempt_ended_s == pytest.approx(9.0)
    assert reported.first_step_s == pytest.approx(15.0)
    measured = recovery(incident.store, first)
    assert measured.first_step_s == pytest.approx(10.0), "attempt 2's, short as it was"


def test_a_pod_lost_in_anothers_recovery_does_not_wait_for_what_ends_the_next_attempt() -> None:
    """The next attempt starts without it, and ends later for another reason."""
    incident = Incident().begin()
    incident.save()
    incident.inject("pod-kill", 1, ranks=(1,), id="drill-1.1.1")
    incident.lose(1)
    incident.wait(2.0)
    incident.down("rank 1: its node died")
    incident.add(2, ready=True)
    incident.wait(1.0)
    second = incident.inject("pod-kill", 0, ranks=(0,), id="drill-1.1.2")
    incident.lose(0)
    incident.add(3, ready=True)
    incident.wait(2.0)
    incident.restart(2, 3)
    incident.train(90.0)
    incident.inject("pod-kill", 2, ranks=(0,), id="drill-1.1.3")
    incident.wait(2.0)
    incident.down("rank 0: its node died")
    incident.restart(2, 3)
    incident.train(30.0)
    reported = recovery(incident.store, second)
    assert reported.interrupted is False
    assert M.ATTEMPT_ENDED not in reached(reported)
    assert reported.reached(M.THROUGHPUT_BACK) is not None


def test_an_attempt_that_never_stepped_is_not_the_recovery() -> None:
    incident = Incident().begin()
    incident.save()
    drill = incident.inject("rank-kill", 1, ranks=(1,))
    incident.wait(2.0)
    incident.down("rank 1: its process died")
    incident.wait(2.0)
    incident.up(0, 1)
    incident.wait(1.0)
    incident.down("rank 1: its node died", "max_preemption_failures")
    incident.wait(1.0)
    incident.restart(0, 1)
    incident.train(30.0)
    measured = recovery(incident.store, drill)
    assert measured.first_step_s == 10.0
    assert (measured.restarts, measured.budget) == (2, "max_failures+max_preemption_failures")


def test_kills_one_after_the_other_each_have_their_own_recovery() -> None:
    incident = Incident().begin()
    drills = []
    for number in (1, 2, 3):
        incident.save()
        drills.append(incident.inject("random-kills", 1, ranks=(1,), id=f"drill-1.1.{number}"))
        incident.wait(float(number))
        incident.down("rank 1: its process died")
        incident.restart(0, 1)
        incident.train(40.0)
    measured = [recovery(incident.store, drill) for drill in drills]
    assert [one.attempt_ended_s for one in measured] == [1.0, 2.0, 3.0]
    assert [one.first_step_s for one in measured] == [5.0, 6.0, 7.0]
    assert all(one.restarts == 1 for one in measured)


def test_fewer_ranks_are_measured_by_what_they_can_do() -> None:
    incident = Incident(ranks=4).begin()
    incident.save()
    drill = incident.inject("pod-kill", 3, ranks=(3,))
    incident.lose(3)
    incident.wait(3.0)
    incident.down("rank 3: its node died")
    incident.restart(0, 1, 2)
    incident.train(30.0)
    measured = recovery(incident.store, drill)
    assert (measured.ranks_before, measured.ranks_after) == (4, 3)
    assert source_of(measured, M.THROUGHPUT_BACK) == "telemetry: ranks, of 3 ranks and not 4"
    assert reached(measured)[M.THROUGHPUT_BACK] == 8.0


def test_an_effect_is_never_shown_before_its_cause_because_clocks_differ() -> None:
    incident = Incident(skew_s=-5.0)
    measured = recovery(incident.store, killed_pod(incident), Reading(attempt=1))
    reported = reached(measured)
    assert reported[M.ATTEMPT_ENDED] == 0.0, "2 s before the injection, by the controller's clock"
    assert reported[M.STOPPED] == -5.0
    assert min(at for m, at in reported.items() if m is not M.STOPPED) == 0.0
    assert any(
        line.startswith("attempt ended: 2.0 s before injected by the clock of telemetry")
        for line in measured.missing_data
    )


def test_missing_data_is_reported_with_time_and_reason() -> None:
    incident = Incident().begin()
    incident.save()
    drill = incident.inject("head-kill", ranks=())
    incident.now_s = 12.0
    incident.health("ray", ok=False, error="connection refused")
    incident.now_s = 31.0
    incident.health("ray")
    incident.health("telemetry", ok=False, error="no head")
    measured = recovery(incident.store, drill)
    assert measured.missing_data[:2] == (
        "ray sent no data from 0.0 s to 31.0 s: connection refused",
        "telemetry has sent no data since 0.0 s: no head",
    )


def test_a_run_that_reports_no_steps_is_back_with_its_first_report() -> None:
    incident = Incident()
    incident.pods = {}
    incident.state(RunState.INITIALIZING)
    incident.up(0, 1)
    incident.now_s = 0.0
    drill = incident.inject("rank-kill", ranks=(1,))
    incident.wait(2.0)
    incident.down("rank 1: its process died")
    incident.wait(3.0)
    incident.up(0, 1)
    incident.wait(4.0)
    incident.tell(
        MetricsReported(at_s=T + 9.0, source="telemetry", run_id=RUN, attempt=2, metrics={"x": 1})
    )
    measured = recovery(incident.store, drill)
    assert measured.first_step_s == 9.0
    assert (measured.steps_lost, measured.seconds_lost) == (None, None)
    assert "no rank reports its steps" in measured.missing_data[0]
    assert is_complete(incident.store, drill, Reading(), incident.clock)


def test_a_driver_that_is_lost_may_be_started_again_for_a_while() -> None:
    incident = Incident().begin()
    drill = incident.inject("head-kill")
    incident.wait(5.0)
    incident.store.runs[RUN].enter(incident.clock, RunState.ERRORED)
    incident.store.runs[RUN].attempts[1].reason = "job failed"
    before = Reading()
    assert not is_complete(incident.store, drill, before, incident.clock)
    assert is_complete(incident.store, drill, before, incident.clock + 90.0)
    incident.store.runs[RUN].attempts[1].reason = "rank 0: ValueError"
    assert is_complete(incident.store, drill, before, incident.clock)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lambda attempt, step: falling(attempt, step), True),
        (lambda attempt, step: 1.0 if attempt == 1 else 3.0, False),
        (lambda attempt, step: 1.0 if attempt == 1 else math.nan, False),
        (lambda attempt, step: 1.0 if attempt == 1 else 0.5, True),
        (lambda attempt, step: -5.0 + 0.01 * math.sin(step), True),
        (lambda attempt, step: 2.3 if step < 50 else 1e-4 if attempt == 1 else 2e-3, True),
        (lambda attempt, step: 2.3 if step < 20 else 1e-4 if attempt == 1 else 2e-2, True),
        (lambda attempt, step: 2.3 if step < 50 else 1e-4 if attempt == 1 else 0.5, False),
    ],
    ids=[
        "done again",
        "from the beginning",
        "not a number",
        "lower",
        "negative",
        "noise near zero",
        "noise near zero of a quick run",
        "a fifth of the way back",
    ],
)
def test_the_loss_after_is_held_against_the_curve_before(
    loss: Callable[[int, int], float], expected: bool
) -> None:
    incident = Incident(loss=loss)
    found = recovery(incident.store, killed_pod(incident)).continuity
    assert found is not None
    assert found.continuous is expected


@pytest.mark.parametrize(
    ("before", "after", "resumed_at", "expected"),
    [
        (1e-6, 1e-4, 1, False),
        (1e-6, 1e-4, 401, True),
        (1e-6, 1e-4, None, True),  # its first attempt failed before a step
        (1e-6, 0.5, 401, False),
        (0.0, 3.725e-9, 1, True),  # rounding
    ],
)
def test_near_zero_the_loss_of_a_resumed_run_may_be_a_multiple(
    before: float, after: float, resumed_at: int | None, expected: bool
) -> None:
    incident = Incident(loss=lambda attempt, step: before if attempt == 1 else after)
    drill = killed_pod(incident)
    incident.store.runs[RUN].attempts[1].first_step = resumed_at
    found = recovery(incident.store, drill).continuity
    assert found is not None
    assert found.continuous is expected


def test_a_run_that_ended_well_at_the_same_time_was_not_interrupted() -> None:
    incident = Incident().begin()
    drill = incident.inject("dashboard-kill")
    incident.train(3.0)
    incident.down("finished", "none")
    incident.state(RunState.SHUTTING_DOWN)
    incident.state(RunState.FINISHED)
    measured = recovery(incident.store, drill)
    assert measured.interrupted is False
    assert is_complete(incident.store, drill, Reading(), incident.clock)


def test_a_pod_that_was_removed_before_it_was_ready_is_no_replacement() -> None:
    incident = Incident().begin()
    drill = incident.inject("pod-kill", 1, ranks=(1,))
    incident.wait(1.0)
    incident.lose(1)
    incident.add(2, ready=False)
    incident.wait(9.0)
    incident.lose(2)
    assert recovery(incident.store, drill).pod_ready_s is None
    incident.wait(10.0)
    incident.add(3, ready=True)
    assert recovery(incident.store, drill).pod_ready_s == 20.0


def test_replacement_that_was_killed_before_it_was_ready_is_replaced_for_both_kills() -> None:
    incident = Incident().begin()
    first = incident.inject("pod-kill", 1, ranks=(1,), id="drill-1.1.1")
    incident.wait(1.0)
    incident.lose(1)
    incident.add(2, ready=False)
    incident.wait(9.0)
    second = incident.inject("pod-kill", 2, id="drill-1.1.2")
    incident.lose(2)
    for drill in (first, second):
        assert recovery(incident.store, drill).pod_ready_s is None
    incident.wait(1.0)
    incident.add(3, ready=False)
    incident.wait(4.0)
    incident.add(3, ready=True)
    assert recovery(incident.store, first).pod_ready_s == 15.0
    assert recovery(incident.store, second).pod_ready_s == 5.0


def test_a_scaled_down_pod_takes_no_replacement_from_a_killed_one() -> None:
    incident = Incident(ranks=3).begin()
    incident.save()
    scaled = incident.inject("scale-down", 2, id="drill-1")
    incident.lose(2)
    incident.train(30.0)
    killed = incident.inject("pod-kill", 1, ranks=(1,), id="drill-2")
    incident.lose(1)
    incident.wait(2.0)
    incident.add(3, ready=True)
    assert recovery(incident.store, killed).pod_ready_s == 2.0
    reported = recovery(incident.store, scaled)
    assert reported.pod_gone_s == 0.0
    assert reported.reached(M.POD_REPLACED) is None


def test_a_pod_that_is_created_again_under_its_name_is_back_each_time() -> None:
    incident = Incident().begin()
    for number in (1, 2):
        drill = replace(incident.inject("head-kill", 1, id=f"drill-{number}"), run_id="")
        incident.wait(1.0)
        incident.lose(1)
        assert recovery(incident.store, drill).pod_gone_s == (1.0 if number == 1 else None)
        incident.wait(1.0)
        incident.add(1, ready=False)
        assert recovery(incident.store, drill).pod_ready_s is None
        # Of the second one, only that it is not ready is known.
        assert recovery(incident.store, drill).pod_gone_s == number
        incident.wait(2.0)
        incident.add(1, ready=True)
        assert recovery(incident.store, drill).pod_ready_s == 4.0
        assert is_complete(incident.store, drill, Reading(), incident.clock)
        incident.wait(60.0)
