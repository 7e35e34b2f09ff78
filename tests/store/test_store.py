from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from cockpit.model.cluster import PodPhase
from cockpit.model.event import (
    Event,
    JobsListed,
    LogLines,
    MetricsReported,
    Notice,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import Checkpoint, Job, JobStatus, RunState
from cockpit.store import selectors
from cockpit.store.run import THINNED_CURVES
from cockpit.store.series import Series
from cockpit.store.store import LOG_LINES_KEPT, NOTICES_KEPT, RUNS_KEPT, RUNS_WHOLE, Store
from tests.events import (
    HEAD,
    ONE,
    RUN,
    THREE,
    TWO,
    before_the_kill,
    pod,
    pods,
    reduced,
    run_seen,
    sample,
    started,
    the_recovery,
    tick,
)


def health(at_s: float, ok: bool, **more: object) -> SourceHealth:
    event = SourceHealth(at_s=at_s, source="ray", ok=ok)
    return replace(event, **more)


def test_a_series_keeps_the_newest_points_and_stays_bounded() -> None:
    series = Series(100)
    for i in range(1000):
        series.append(float(i), float(i))
    assert len(series) <= 100
    assert list(series)[-1] == (999.0, 999.0)
    assert list(series.times) == sorted(series.times)
    assert series.last == 999.0
    assert Series(10).last is None


def test_event_that_is_listed_again_is_kept_once() -> None:
    """As by a second process that continues the recording of the first one."""
    store = Store()
    first, second = (notice(float(at_s)) for at_s in (1, 2))
    for event in (first, second, first, second):
        store.apply(event)
    assert list(store.notices) == [first, second]
    for at_s in range(3, NOTICES_KEPT + 3):
        store.apply(notice(float(at_s)))
    assert len(store.notices) == len(store.known_notices) == NOTICES_KEPT
    assert store.notices[0] == notice(3.0)


def notice(at_s: float) -> Notice:
    return Notice(at_s=at_s, source="backend", kind="Pod", name="a", reason="Killed", message="")


def test_a_run_is_built_from_its_events() -> None:
    store = reduced(before_the_kill())
    run = selectors.current_run(store)
    assert run is not None
    assert (run.state, run.world_size, run.step) == (RunState.RUNNING, 2, 50)
    assert run.attempt is not None
    assert (run.attempt.number, run.attempt.first_step) == (1, 1)
    assert run.ranks[0].loss_first == 2.0 / 25
    assert run.ranks[1].steps == 50
    assert run.samples_seen == 4
    assert run.curves["samples_per_s"].last == 200.0
    assert selectors.ranks_on_pod(run, TWO) == (1,)
    assert selectors.pod_of_rank(store, run.ranks[0]) == ONE


def test_a_sample_that_comes_twice_counts_once() -> None:
    store = reduced([*before_the_kill(), tick(1, 99.0, 26, 50), tick(1, 95.0, 1, 25)])
    assert store.runs[RUN].samples_seen == 4
    assert store.runs[RUN].ranks[0].steps == 50


def test_attempts_follow_each_other_and_the_step_goes_back() -> None:
    run = reduced([*before_the_kill(), *the_recovery()]).runs[RUN]
    assert sorted(run.attempts) == [1, 2]
    assert run.attempts[1].reason == "node 127.0.1.3 died"
    assert (run.attempts[1].last_step, run.attempts[2].first_step) == (52, 41)
    assert run.step == 45


def test_sample_of_an_attempt_beyond_belief_is_dropped() -> None:
    events = [*before_the_kill(), tick(10**9, 101.0, 51, 60), tick(1, 102.0, 51, 55)]
    run = reduced(events).runs[RUN]
    assert list(run.attempts) == [1]
    assert run.step == 55


def test_attempt_beyond_belief_ends_with_the_first_start_that_is_known() -> None:
    run = reduced([tick(10**9, 90.0, 1, 5), *before_the_kill()]).runs[RUN]
    assert list(run.attempts) == [1]


def test_a_loss_that_is_nan_on_one_rank_shows_in_the_mean() -> None:
    event = tick(1, 101.0, 51, 60)
    bad = replace(event, samples=(event.samples[0], replace(event.samples[1], loss=math.nan)))
    run = reduced([*before_the_kill(), bad]).runs[RUN]
    assert run.curves["loss"].last is not None
    assert math.isnan(run.curves["loss"].last)


def test_a_pod_that_failed_or_left_the_list_no_longer_exists_since_then() -> None:
    dead = pod(TWO.name, TWO.ip, phase=PodPhase.FAILED, ended_s=7.5)
    store = reduced([pods(1.0, HEAD, ONE, TWO), pods(8.0, HEAD, dead), pods(9.0, HEAD)])
    assert store.removed_pods == {ONE.name: 8.0, TWO.name: 7.5}
    assert [count for _, count in store.ready_counts] == [2, 0]


def test_pods_are_listed_with_the_head_first() -> None:
    store = reduced([pods(1.0, TWO, ONE, HEAD)])
    assert [p.name for p in selectors.pods_in_order(store)] == [HEAD.name, ONE.name, TWO.name]


def test_a_rank_that_an_elastic_resize_took_away_is_not_listed() -> None:
    store = reduced([*before_the_kill(), started(110.0, 2, ONE)])
    assert [rank.rank for rank in selectors.ranks_in_order(store.runs[RUN])] == [0]


def test_the_placement_of_a_dead_attempt_blames_no_pod() -> None:
    store = reduced([*before_the_kill(), *the_recovery()[:4]])
    assert selectors.ranks_on_pod(store.runs[RUN], ONE) == ()


def test_a_source_that_fails_keeps_the_time_when_it_was_well() -> None:
    store = reduced([health(10.0, True), health(20.0, False, error="refused", retry_at_s=25.0)])
    assert selectors.stale_sources(store, 21.0) == [("ray", 11.0, "refused")]
    assert selectors.stale_sources(reduced([health(10.0, True)]), 11.0) == []
    assert selectors.stale_sources(reduced([health(10.0, True)]), 30.0) == [("ray", 20.0, "")]
    assert selectors.stale_sources(reduced([health(1.0, False, absent=True)]), 30.0) == []


def test_source_with_an_announced_poll_is_late_only_after_it() -> None:
    rests = reduced([health(10.0, True, retry_at_s=25.0)])
    assert selectors.stale_sources(rests, 29.0) == []
    assert selectors.stale_sources(rests, 31.0) == [("ray", 21.0, "")]
    failed = reduced([health(10.0, True), health(12.0, False, retry_at_s=40.0)])
    assert selectors.stale_sources(failed, 13.0) == [("ray", 3.0, "")]


def test_logs_are_bounded_and_know_what_they_dropped() -> None:
    lines = tuple(str(i) for i in range(LOG_LINES_KEPT + 10))
    store = reduced([LogLines(at_s=1.0, source="logs", stream="job:a", lines=lines)])
    log = store.logs["job:a"]
    assert (log.total, log.first, log.lines[0]) == (LOG_LINES_KEPT + 10, 10, "10")


def test_reports_keep_the_newest_checkpoint() -> None:
    first = MetricsReported(
        at_s=5.0,
        source="telemetry",
        run_id=RUN,
        attempt=1,
        metrics={"accuracy": 0.5},
        checkpoint=Checkpoint(10, "/c/1"),
    )
    run = reduced([first, replace(first, at_s=6.0, checkpoint=None, metrics={"accuracy": 0.9})])
    assert run.runs[RUN].metrics == {"accuracy": 0.9}
    assert run.runs[RUN].checkpoint == Checkpoint(10, "/c/1")
    assert run.runs[RUN].checkpoint_s == 5.0


def test_an_event_of_an_unknown_kind_is_let_pass() -> None:
    store = Store()
    store.apply(Event(at_s=1.0, source="future"))
    assert store.version == 1


def test_the_run_that_continues_is_current_and_else_the_newest() -> None:
    store = Store()
    assert selectors.current_run(store) is None
    for run_id, at_s, state in (
        ("a", 1.0, RunState.FINISHED),
        ("b", 2.0, RunState.RUNNING),
        ("c", 3.0, RunState.ERRORED),
    ):
        store.runs[run_id] = run = store._run(run_id)
        run.enter(at_s, state)
    assert (current := selectors.current_run(store)) is not None
    assert current.id == "b"
    store.runs["d"] = waits = store._run("d")
    waits.enter(3.5, RunState.SCHEDULING)
    store.runs["b"].attempt_view(1)
    assert selectors.current_run(store) is store.runs["b"], "it has the ranks that `d` waits for"
    waits.attempt_view(1)
    assert selectors.current_run(store) is waits
    del store.runs["d"]
    store.runs["b"].enter(4.0, RunState.FINISHED)
    assert (current := selectors.current_run(store)) is not None
    assert current.id == "c"


def test_a_thousand_ranks_fold_in_without_losing_one() -> None:
    store = reduced([tick(1, 1.0, 1, 5, ranks=1000)])
    assert len(store.runs[RUN].ranks) == 1000
    assert sample(0, 1, 1.0, 1, 5) == store.runs[RUN].ranks[0].sample
    assert THREE.ready


def jobs(at_s: float, status: JobStatus, message: str = "") -> JobsListed:
    job = Job("sub-1", "python train.py", status, message, 70.0, 120.0)
    return JobsListed(at_s=at_s, source="ray", jobs=(job,))


def of_job(event: RunSeen) -> RunSeen:
    return replace(event, submission_id="sub-1")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (JobStatus.STOPPED, RunState.ABORTED),
        (JobStatus.FAILED, RunState.ERRORED),
        (JobStatus.SUCCEEDED, RunState.FINISHED),
    ],
)
@pytest.mark.parametrize("job_first", [True, False])
def test_a_run_whose_driver_no_longer_exists_ends_with_its_job(
    status: JobStatus, state: RunState, job_first: bool
) -> None:
    seen = of_job(run_seen(90.0, RunState.RUNNING))
    over = jobs(121.0, status, "killed\nby hand")
    events = [over, seen] if job_first else [seen, over]
    run = reduced([*before_the_kill(), *events]).runs[RUN]
    assert run.state is state
    assert run.ended_s == 120.0
    assert run.message == f"its job is {status.value}: killed by hand"
    assert run.attempt is not None
    assert run.attempt.reason == f"job {status.value.lower()}"


def test_a_run_that_reported_how_it_ended_is_believed() -> None:
    ended = of_job(replace(run_seen(119.0, RunState.ERRORED), message="rank 1: NaN"))
    run = reduced([*before_the_kill(), ended, jobs(121.0, JobStatus.FAILED)]).runs[RUN]
    assert (run.state, run.message) == (RunState.ERRORED, "rank 1: NaN")


def test_a_run_whose_job_continues_is_left_alone() -> None:
    events = [of_job(run_seen(95.0, RunState.RUNNING)), jobs(96.0, JobStatus.RUNNING)]
    assert reduced([*before_the_kill(), *events]).runs[RUN].state is RunState.RUNNING


def test_late_events_of_an_older_driver_fill_only_empty_fields() -> None:
    newer = replace(run_seen(90.0, RunState.RUNNING), job_id="02000000", submission_id="two")
    older = replace(
        run_seen(50.0, RunState.ERRORED), job_id="01000000", submission_id="one", message="died"
    )
    run = reduced([newer, older]).runs[RUN]
    assert (run.state, run.job_id, run.submission_id) == (RunState.RUNNING, "02000000", "two")
    assert run.message == ""


def test_the_runs_of_a_long_sweep_keep_a_row_each_and_only_the_newest_their_curves() -> None:
    store, number = Store(), RUNS_KEPT + 50
    for at_s in range(number):
        run = RunSeen(
            at_s=at_s, source="telemetry", run_id=f"{at_s}", name="trial", state=RunState.RUNNING
        )
        store.apply(run)
        store.apply(replace(tick(1, at_s, 1, 10), run_id=run.run_id))
        store.apply(replace(run, at_s=at_s + 1, state=RunState.FINISHED))
    assert len(store.runs) == RUNS_KEPT
    whole = [run for run in store.runs.values() if not run.is_thinned]
    assert [run.id for run in whole] == [f"{number - n}" for n in range(RUNS_WHOLE, 0, -1)]
    assert all(len(run.curves["loss"]) and run.ranks for run in whole)
    old = store.runs[f"{number - RUNS_KEPT}"]
    assert (selectors.step_of(old), selectors.loss_of(old)) == (10, 0.2)
    assert not old.ranks
    assert set(old.curves) <= set(THINNED_CURVES)


def test_a_thinned_run_grows_again_only_when_its_driver_comes_back() -> None:
    store = Store()
    run = RunSeen(at_s=1, source="telemetry", run_id=RUN, name="n", state=RunState.RUNNING)
    store.apply(run)
    store.apply(replace(run, at_s=2, state=RunState.FINISHED))
    for other in range(RUNS_WHOLE):
        store.apply(replace(run, run_id=f"{other}", at_s=3, state=RunState.FINISHED))
    assert store.runs[RUN].is_thinned
    store.apply(tick(1, 1.5, 1, 10))
    assert not store.runs[RUN].ranks
    store.apply(replace(run, at_s=9))
    store.apply(tick(2, 10, 11, 20))
    assert store.runs[RUN].ranks


def test_a_run_that_ends_with_its_job_is_thinned_too() -> None:
    store = Store()
    for number in range(RUNS_WHOLE + 10):
        run = RunSeen(at_s=number, source="t", run_id=f"{number}", name="n", state=RunState.RUNNING)
        store.apply(replace(run, submission_id=f"job-{number}"))
    ended = tuple(
        Job(f"job-{number}", "x", JobStatus.STOPPED, ended_s=200.0)
        for number in range(RUNS_WHOLE + 10)
    )
    store.apply(JobsListed(at_s=201, source="ray", jobs=ended))
    assert sum(run.is_thinned for run in store.runs.values()) == 10
