"""Each diagnosis' numbers, on runs whose true ones are known."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from msgspec.structs import fields, replace

from cockpit.insight.detectors.findings import SOURCE_OF
from cockpit.insight.detectors.hysteresis import RAISE_AFTER_S
from cockpit.insight.detectors.memory import growth_bytes_per_s
from cockpit.insight.detectors.regression import against_recorded
from cockpit.insight.detectors.straggler import scores, standings
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics import checkpoint
from cockpit.insight.metrics.bottleneck import shares
from cockpit.insight.metrics.checkpoint import UnsavedWork, at_risk
from cockpit.insight.metrics.cost import cost
from cockpit.insight.metrics.diagnosis import diagnosis
from cockpit.insight.metrics.eta import eta
from cockpit.insight.metrics.goodput import goodput, redone_steps, stalled_s
from cockpit.insight.metrics.robust_statistics import blocks, median, slope, spread
from cockpit.insight.metrics.scaling import scaling
from cockpit.insight.metrics.summary import job_of, summary
from cockpit.model.event import (
    JobsListed,
    MetricsReported,
    PhaseEntered,
    RankSampled,
    TrackedRunsListed,
)
from cockpit.model.run import Job, JobStatus, Phase, RankSample, RunState, RunSummary, Spread
from cockpit.model.tracking import TrackedRun
from cockpit.store.run import RUN_POINTS, RunView
from cockpit.store.series import Series
from tests.insight.training_run import RUN, T0, Training


def run(training: Training, seconds: float) -> Training:
    if training.attempt == 0:
        training.start()
    for _ in training.go(seconds):
        pass
    return training


def known(sample: RankSample, at_s: float) -> RankSample:
    """Steps of 0.1 s: a fifth waits for data, three tenths for the others."""
    return replace(sample, step_time_s=0.1, data_wait_s=0.02, comm_s=0.03, samples_per_s=320.0)


# -- shares of the step


def test_shares_are_those_of_the_step_and_add_up() -> None:
    found = shares(run(Training(change=known, saves=1e9), 300).run)
    assert found is not None
    assert found.input_percent == pytest.approx(20, abs=0.5)
    assert found.comm_percent == pytest.approx(30, abs=0.5)
    assert found.checkpoint_percent == pytest.approx(0, abs=0.1)
    assert sum(percent for _, percent in found.parts) == pytest.approx(100)
    assert found.step_time_s == pytest.approx(0.1)


def test_communication_that_the_gpu_hides_is_not_counted() -> None:
    """0.06 s of communication under 0.07 s of compute: what shows of it is 0.01 s."""
    found = shares(
        run(
            Training(
                change=lambda s, t: replace(
                    known(s, t), comm_s=0.06, forward_s=0.02, backward_s=0.04, optimizer_s=0.01
                ),
                saves=1e9,
            ),
            200,
        ).run
    )
    assert found is not None
    assert found.comm_percent == pytest.approx(10, abs=0.5)


def test_checkpoints_share_is_over_a_longer_time() -> None:
    training = Training(change=lambda s, t: replace(known(s, t), checkpoint_s=s.checkpoint_s))
    training.saves, training.save_s = 100.0, 20.0
    found = shares(run(training, 1_500).run)
    assert found is not None
    assert found.checkpoint_percent == pytest.approx(19, abs=2)
    assert found.largest == "compute"


def test_nothing_is_reported_of_a_run_that_reports_no_parts() -> None:
    plain = Training(
        change=lambda s, t: replace(s, data_wait_s=None, comm_s=None, checkpoint_s=None)
    )
    assert shares(run(plain, 100).run) is None
    assert shares(run(Training(), 5).run) is None


# -- stragglers


def slow(rank: int, by: float) -> Training:
    def change(sample: RankSample, at_s: float) -> RankSample:
        own = 0.07 * (by if sample.rank == rank else 1.0)
        step = 0.07 * by + 0.01
        return replace(sample, step_time_s=step, comm_s=step - own)

    return Training(ranks=4, change=change)


def test_the_score_reports_who_waits_least_though_all_steps_take_the_same() -> None:
    training = run(slow(2, 1.5), 60)
    found = standings(training.run)
    assert max(found, key=lambda rank: found[rank].score) == 2
    assert found[2].excess_percent == pytest.approx(100 * 0.035 / 0.115, abs=0.5)
    assert all(abs(found[rank].score) < 1 for rank in (0, 1, 3))


def test_of_two_ranks_the_score_has_a_sign() -> None:
    training = slow(1, 1.5)
    training.ranks = 2
    found = scores(run(training, 60).run)
    assert found[1] > 5 > 0 > found[0]


def test_a_wide_world_is_scored_by_its_spreads_too() -> None:
    training = run(Training(ranks=2), 60)
    values = {"step_time_s": (0.1, 0.1, 0.1, 0.1), "comm_s": (0.01, 0.048, 0.052, 0.06)}
    spreads = tuple(
        Spread(name, 1000, p10, low, p10, (p10 + p90) / 2, p90, high, 617, 3)
        for name, (low, p10, p90, high) in values.items()
    )
    training.tell(
        RankSampled(
            at_s=training.clock, source="telemetry", run_id=RUN, samples=(), spreads=spreads,
            attempt=1, reporting=1000,
        )
    )  # fmt: skip
    found = standings(training.run)
    assert found[617].score == pytest.approx(10, abs=0.5)
    assert found[617].excess_percent == pytest.approx(40)


# -- goodput


def test_goodput_and_losses_add_up_to_the_wall_time() -> None:
    training = run(Training(saves=100.0, save_s=5.0), 600)
    step = training.step
    training.end("rank 1 died", back_by=50)
    training.now_s += 20
    run_again(training, 600)
    found = goodput(training.run, training.clock)
    assert found is not None
    assert found.wall_s == pytest.approx(training.now_s)
    assert sum(found.seconds.values()) == pytest.approx(found.wall_s)
    assert sum(percent for _, percent in found.parts) == pytest.approx(100)
    # Attempt 1 took 4 s to be placed and 9 to its first record; attempt 2 the same, after 20 s.
    assert found.lost_s["starting"] == pytest.approx(13, abs=1)
    assert found.lost_s["restart after failure"] == pytest.approx(33, abs=1)
    assert found.lost_s["checkpoint stall"] == pytest.approx(60, abs=6)
    assert redone_steps(training.run) == 50
    assert found.lost_s["redone steps"] == pytest.approx(5, abs=0.5)
    assert training.step > step


def test_steps_before_an_attempt_that_made_none_are_done_again_too() -> None:
    training = run(Training(saves=1e9), 100)
    training.end("rank 1 died", back_by=50)
    training.start()
    training.end("rank 0: its node died")
    run_again(training, 100)
    assert redone_steps(training.run) == 50


def run_again(training: Training, seconds: float) -> None:
    training.start()
    for _ in training.go(seconds):
        pass


def test_phases_are_more_precise_than_states() -> None:
    training = Training()
    for phase, lasts in (
        (Phase.SCHEDULING, 10), (Phase.PLACEMENT_GROUP, 1), (Phase.ACTOR_START, 4),
        (Phase.PROCESS_GROUP, 3), (Phase.RESTORE, 7), (Phase.FIRST_STEP, 5),
    ):  # fmt: skip
        enter(training, phase, 1)
        training.now_s += lasts
    training.start()
    enter(training, Phase.RUNNING, 1)
    run(training, 100)
    found = goodput(training.run, training.clock)
    assert found is not None
    assert found.lost_s["scheduling"] == pytest.approx(10)
    assert found.lost_s["restore"] == pytest.approx(7)
    assert found.lost_s["starting"] == pytest.approx(13 + 12)
    assert found.useful_s == pytest.approx(100, abs=3)


def enter(training: Training, phase: Phase, attempt: int) -> None:
    training.tell(
        PhaseEntered(
            at_s=training.clock, source="telemetry", run_id=RUN, attempt=attempt, phase=phase
        )
    )


def test_stalled_time_is_not_useful_and_short_pauses_are() -> None:
    training = run(Training(saves=1e9, pauses=((100, 115), (200, 400))), 600)
    found = goodput(training.run, training.clock)
    assert found is not None
    assert found.lost_s["stalled"] == pytest.approx(200, abs=2)
    still = goodput(training.run, training.clock + 300)
    assert still is not None
    assert still.lost_s["stalled"] == pytest.approx(500, abs=3)


def test_a_resize_is_no_failure() -> None:
    training = run(Training(ranks=4), 200)
    training.state(RunState.RESIZING)
    training.now_s += 5
    training.end("resized")
    training.state(RunState.RESIZING)
    training.ranks = 2
    run_again(training, 200)
    found = goodput(training.run, training.clock)
    assert found is not None
    assert "resize" in found.lost_s


def test_stalls_are_counted_whole_from_a_series_that_was_thinned() -> None:
    """Once in fifty records 20 s, over three times as many records as fit."""
    series, at_s, truth = Series(RUN_POINTS), 0.0, 0.0
    for record in range(3 * RUN_POINTS):
        blocked = 20.0 if record % 50 == 0 else 0.0
        at_s += 1.0 + blocked
        truth += blocked
        series.append(at_s, blocked)
    assert stalled_s(series) == pytest.approx(truth, rel=0.05)


# -- ETA


def test_the_end_is_known_from_the_command_line() -> None:
    training = run(Training(change=known, saves=1e9), 300)
    assert eta(training.store, training.run, training.clock) is None
    training.run.submission_id = "job"
    job = Job("job", "python train.py --max-steps 10000", JobStatus.RUNNING)
    training.tell(JobsListed(at_s=training.clock, source="ray", jobs=(job,)))
    found = eta(training.store, training.run, training.clock)
    assert found is not None
    assert found.left_s == pytest.approx((10_000 - training.step) * 0.1, rel=0.01)
    assert found.low_s <= found.left_s <= found.high_s
    assert found.unit == "steps"


def test_the_end_in_epochs_counts_evaluations() -> None:
    """Epochs of 60 s by the reports, for any duration of the steps."""
    training = Training(change=known)
    training.start()
    for second in training.go(400):
        if second % 60 == 0:
            training.tell(
                MetricsReported(
                    at_s=training.clock, source="telemetry", run_id=RUN, attempt=1,
                    metrics={"epoch": second / 60, "max_epochs": 10.0},
                )
            )  # fmt: skip
    found = eta(training.store, training.run, training.clock)
    assert found is not None
    assert (found.done, found.target, found.unit) == (6.0, 10.0, "epochs")
    assert found.left_s == pytest.approx(240, abs=1)


def test_the_end_is_known_from_the_tracker() -> None:
    training = run(Training(change=known), 100)
    tracked = TrackedRun("m", "m", "e", "RUNNING", params={"max_steps": "5e3"}, run_id=RUN)
    training.tell(TrackedRunsListed(at_s=training.clock, source="mlflow", runs=(tracked,)))
    found = eta(training.store, training.run, training.clock)
    assert found is not None
    assert found.target == 5_000


# -- against other runs


def recorded(world_size: int, rate: float, number: int, job: str = "r") -> RunSummary:
    return RunSummary(f"old-{number}", "r", job, RunState.FINISHED, world_size, samples_per_s=rate)


def test_a_run_is_compared_with_recorded_runs_of_its_world_size() -> None:
    training = run(Training(change=known), 400)
    limits = Thresholds()
    fast = [recorded(2, rate, n) for n, rate in enumerate((900.0, 910.0, 890.0, 905.0))]
    drop = against_recorded(training.run, fast, limits)
    assert drop is not None
    assert drop.now == pytest.approx(640)
    assert drop.percent == pytest.approx(29, abs=1)
    assert drop.is_slow(limits)
    same = [recorded(2, rate, n) for n, rate in enumerate((630.0, 640.0, 650.0))]
    like = against_recorded(training.run, same, limits)
    assert like is not None
    assert not like.is_slow(limits)
    assert against_recorded(training.run, same[:2], limits) is None
    assert against_recorded(training.run, [replace(s, world_size=8) for s in fast], limits) is None


def test_scaling_is_against_the_smallest_world() -> None:
    training = run(Training(ranks=4, change=known), 300)
    points = scaling(training.run, [recorded(1, 320.0, 1), recorded(2, 600.0, 2)], 60.0)
    reported = [(it.world_size, round(it.efficiency_percent)) for it in points]
    assert reported == [(1, 100), (2, 94), (4, 100)]


def test_scaling_is_known_from_the_attempts_of_one_run() -> None:
    def change(sample: RankSample, at_s: float) -> RankSample:
        return replace(known(sample, at_s), samples_per_s=100.0 if sample.attempt == 1 else 80.0)

    training = run(Training(ranks=2, change=change), 200)
    training.end("resized")
    training.ranks = 4
    run_again(training, 200)
    points = scaling(training.run, (), 60.0)
    assert [(it.world_size, round(it.efficiency_percent)) for it in points] == [(2, 100), (4, 80)]


# -- what would be lost, and what was


def test_work_at_risk_is_the_work_since_the_checkpoint() -> None:
    training = Training(gpus=True, saves=100.0)
    run(training, 250)
    risk = at_risk(training.run)
    assert risk is not None
    assert risk.steps == pytest.approx(500, abs=15)
    assert risk.seconds == pytest.approx(50, abs=2)
    assert risk.gpu_seconds == pytest.approx(100, abs=4)


def test_one_step_at_risk_is_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "at_risk", lambda run: UnsavedWork(1, 7_200.0, 0.0, None))
    [finding] = checkpoint.find(RunView("r", "r"), Thresholds())
    assert finding.what.startswith("No checkpoint yet: 1 step, 120 min would be lost")


def test_after_a_restart_only_the_new_steps_are_at_risk() -> None:
    training = run(Training(saves=1e9), 200)
    training.end("died", back_by=int(training.step))
    run_again(training, 50)
    risk = at_risk(training.run)
    assert risk is not None
    assert risk.steps == pytest.approx(500, abs=15)
    assert at_risk(run(Training(), 0.0).run) is None


def interrupted(saves: float, save_s: float) -> Training:
    """Ten minutes of training, interrupted twice."""
    training = run(Training(saves=saves, save_s=save_s), 200)
    for _ in range(2):
        training.end("died")
        run_again(training, 200)
    return training


def test_the_best_save_interval_weighs_the_cost_of_a_save_against_redone_work() -> None:
    training = interrupted(saves=20.0, save_s=4.0)
    found = diagnosis(training.store, training.run, training.clock).save_interval
    assert found is not None
    assert found.interruptions == 2
    assert found.usual_s == pytest.approx(20, abs=1)
    assert found.cost_s == pytest.approx(4, rel=0.3)
    assert found.best_s == pytest.approx(math.sqrt(2 * found.cost_s * found.mean_between_s))
    assert found.mean_between_s == pytest.approx((training.clock - T0) / 2, rel=0.05)
    # No other interval loses less.
    least = found.lost_percent(found.best_s)
    assert all(found.lost_percent(found.best_s * factor) > least for factor in (0.7, 0.9, 1.1, 1.4))
    assert not found.is_near
    assert found.text.startswith("every 5")
    assert ", every 20.0 s (now) loses" in found.text
    assert "2 interruptions, one every 5 m 18 s" in found.why


def test_an_interval_near_the_best_one_is_confirmed() -> None:
    training = interrupted(saves=50.0, save_s=4.0)
    found = diagnosis(training.store, training.run, training.clock).save_interval
    assert found is not None
    assert found.is_near
    assert "about the least" in found.text


def test_recorded_runs_of_the_same_size_count_for_the_save_interval() -> None:
    training = run(Training(saves=20.0), 200)
    store, of = training.store, training.run
    assert diagnosis(store, of, training.clock).save_interval is None, "nothing interrupted it"
    job = job_of(store, of)
    past = RunSummary(
        "a", "a", job, RunState.FINISHED, 2, started_s=T0 - 9_000, ended_s=T0, attempts=4
    )
    not_counted = (replace(past, world_size=8), replace(past, run_id=of.id))
    found = diagnosis(store, of, training.clock, [past, *not_counted]).save_interval
    assert found is not None
    assert found.interruptions == 3
    assert found.mean_between_s == pytest.approx((9_000 + training.now_s) / 3, rel=0.02)


def test_lost_time_costs_gpu_hours_and_money() -> None:
    training = run(Training(gpus=True), 100)
    good = goodput(training.run, training.clock)
    assert good is not None
    found = cost(good, 2, price_per_gpu_hour=4.0)
    assert found is not None
    assert found.lost == pytest.approx(sum(good.lost_s.values()) * 2 / 3600)
    assert found.lost_money == pytest.approx(4 * found.lost)
    assert cost(good, 0) is None


# -- a run in a few numbers


def test_a_summary_has_the_job_without_what_changes() -> None:
    training = run(Training(gpus=True, change=known), 100)
    training.run.submission_id = "raysubmit_1"
    entry = "python /tmp/x1/train.py --epochs 3 --out /tmp/ray/2025-11-21_10"
    for job in (
        Job("raysubmit_1", entry, JobStatus.RUNNING),
        Job("raysubmit_1", entry, JobStatus.RUNNING, metadata={"cockpit.job": "digits"}),
    ):
        training.tell(JobsListed(at_s=training.clock, source="ray", jobs=(job,)))
    reported = summary(training.store, training.run)
    assert reported.job == "digits"
    assert reported.samples_per_s == pytest.approx(640)
    assert (reported.world_size, reported.gpus, reported.attempts) == (2, 2.0, 1)
    assert reported.goodput_percent is not None
    assert 80 < reported.goodput_percent < 95
    training.tell(
        JobsListed(at_s=0.0, source="ray", jobs=(Job("raysubmit_1", entry, JobStatus.RUNNING),))
    )
    assert job_of(training.store, training.run) == "python --epochs 3 --out"


def test_a_diagnosis_of_an_empty_run_knows_nothing() -> None:
    training = Training()
    training.state(RunState.SCHEDULING)
    reported = diagnosis(training.store, training.run, training.clock)
    assert (reported.shares, reported.eta, reported.at_risk, reported.cost, reported.scaling) == (
        None, None, None, None, (),
    )  # fmt: skip


def test_finished_run_keeps_the_parts_of_its_last_steps() -> None:
    training = run(Training(change=known), 300)
    before = diagnosis(training.store, training.run, training.clock)
    training.state(RunState.FINISHED)
    after = diagnosis(training.store, training.run, training.clock + 3_600)
    assert before.shares is not None
    assert training.run.state.is_over
    assert after.shares == before.shares


# -- statistics


def test_medians_and_slopes_ignore_a_few_wild_values() -> None:
    assert median([3.0, 1.0, 1e9]) == 3.0
    assert math.isnan(median([]))
    assert spread([1.0, 2.0, 3.0, 4.0, 1e9]) == pytest.approx(1.4826)
    times = [float(n) for n in range(120)]
    values = [2.0 * t + (1e6 if n % 17 == 0 else 0.0) for n, t in enumerate(times)]
    assert slope(blocks(times, values, 12)) == pytest.approx(2.0, rel=0.05)


def test_growth_is_steady_and_a_cache_that_fills_is_none() -> None:
    leak, cache, jump = Series(900), Series(900), Series(900)
    for second in range(600):
        leak.append(float(second), 1e9 + 1e6 * second)
        cache.append(float(second), 1e9 + 6e8 * (1 - math.exp(-second / 60)))
        jump.append(float(second), 1e9 + (6e8 if second > 300 else 0))
    assert growth_bytes_per_s(leak, 0.0, 1e7) == pytest.approx(1e6, rel=0.01)
    assert growth_bytes_per_s(cache, 0.0, 1e7) == 0.0
    assert growth_bytes_per_s(jump, 0.0, 1e7) == 0.0


# -- what is written of it


def test_every_threshold_and_every_alert_is_in_the_docs_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs/diagnosis.md").read_text(encoding="utf-8")
    for item in fields(Thresholds):
        assert f"| `{item.name}` | {item.default:g} |" in page
    for kind in (*RAISE_AFTER_S, *SOURCE_OF, "idle-gpu", "loss-divergence", "loss-plateau"):
        assert f"`{kind}`" in page, kind
