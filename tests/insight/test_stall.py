"""Time without progress, in synthetic runs with a simulated clock."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cockpit.cli.output.run_rows import run_lines
from cockpit.insight.detectors.findings import findings
from cockpit.insight.detectors.stale_ranks import pause_limit_s
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.goodput import goodput
from cockpit.insight.metrics.stall import Stall, stall, stalls
from cockpit.insight.metrics.summary import summary
from cockpit.model.event import MetricsReported, RanksDumped
from cockpit.report.run_report import report
from tests.insight.test_hang import LOOP, REDUCE, WORLD, dump
from tests.insight.training_run import RUN, T0, Training


def trained(training: Training, seconds: float) -> Training:
    training.start()
    for _ in training.go(seconds):
        pass
    return training


def reporting(at: list[float], until: float) -> Training:
    """A run that reports at these seconds, and has no steps."""
    training = Training(change=lambda sample, second: None)
    training.start()
    for second in training.go(until):
        if second in at:
            training.tell(
                MetricsReported(
                    at_s=training.clock, source="telemetry", run_id=RUN, attempt=1,
                    metrics={"loss": 1.0},
                )
            )  # fmt: skip
    return training


def test_run_that_steps_does_not_stall() -> None:
    training = trained(Training(), 300)
    assert stall(training.run, training.clock) is None
    assert stalls(training.run, training.clock) == []


def test_run_without_steps_stalls_since_its_last_step() -> None:
    training = trained(Training(saves=1e9), 300)
    now_s = training.clock + 31
    assert stall(training.run, now_s) == Stall(training.clock, 30.0)
    [(begin_s, end_s)] = stalls(training.run, now_s)
    assert begin_s == pytest.approx(training.clock + 1, abs=0.1)
    assert end_s == now_s


@pytest.mark.parametrize("seconds", [20, 200])
def test_evaluations_that_recur_are_no_stalls(seconds: int) -> None:
    pauses = tuple((at, at + seconds) for at in range(300, 1_800, 500))
    training = trained(Training(saves=1e9, pauses=pauses), 2_000)
    assert stalls(training.run, training.clock) == []
    found = goodput(training.run, training.clock)
    assert found is not None
    assert "stalled" not in found.lost_s


def test_next_evaluation_is_awaited_for_twice_the_longest_before() -> None:
    training = trained(Training(saves=1e9, pauses=((300, 400), (700, 800))), 1_000)
    last = training.clock
    assert stall(training.run, last + 195) is None
    found = stall(training.run, last + 205)
    assert found is not None
    assert found.bound_s == pytest.approx(202, abs=2)


def test_hang_that_ended_the_attempt_is_stalled_time() -> None:
    training = trained(Training(saves=1e9), 300)
    training.now_s += 600
    training.end("timed out")
    training.start()
    for _ in training.go(300):
        pass
    found = goodput(training.run, training.clock)
    assert found is not None
    assert found.lost_s["stalled"] == pytest.approx(600, abs=3)
    assert sum(found.seconds.values()) == pytest.approx(found.wall_s)


def test_run_that_only_reports_stalls_by_the_pace_of_its_reports() -> None:
    at = [60.0 * n for n in range(1, 8)]
    training = reporting(at, 421)
    last = T0 + at[-1]
    assert stall(training.run, last + 355) is None
    assert stall(training.run, last + 365) == Stall(last, 360.0)
    found = goodput(training.run, last + 600)
    assert found is not None
    assert found.lost_s["stalled"] == pytest.approx(540, abs=1)


def test_pace_is_unknown_before_three_instants_of_progress() -> None:
    training = reporting([20.0, 30.0], 40)
    assert stall(training.run, training.clock + 10_000) is None


@pytest.mark.parametrize("at", [[], [20.0], [20.0, 30.0]])
def test_training_without_known_progress_is_neither_useful_nor_lost(at: list[float]) -> None:
    training = reporting(at, 40)
    found = goodput(training.run, training.clock + 3_600)
    assert found is not None
    assert (found.useful_s, found.percent) == (None, None)
    assert found.unknown_s == pytest.approx(3_648)
    assert sum(found.seconds.values()) == pytest.approx(found.wall_s)
    assert summary(training.store, training.run).goodput_percent is None
    raised = findings(training.store, training.run, training.clock + 3_600)
    assert "low-goodput" not in [it.kind for it in raised]
    reported = report(training.store, training.run)
    assert "goodput" not in reported.verdict
    assert sum(percent for _, percent in found.parts) == pytest.approx(100)


def test_training_is_useful_from_the_third_report_on() -> None:
    training = reporting([20.0, 30.0, 40.0], 40)
    found = goodput(training.run, training.clock)
    assert found is not None
    assert found.unknown_s == 0.0
    assert found.percent == pytest.approx(80, abs=15)


@pytest.mark.parametrize(
    ("number", "kind"), [(0, "useful"), (1, "unknown")], ids=["progress", "no progress"]
)
def test_training_without_reports_is_useful_if_the_watchdog_of_its_ranks_reports_progress(
    number: int, kind: str
) -> None:
    training = reporting([], 40)
    training.tell(
        RanksDumped(
            at_s=training.clock, source="telemetry", run_id=RUN, attempt=1,
            dumps=(dump(0, 0, 1, waits=False, number=number, usual_s=None),), stacks=(LOOP,),
            groups=(WORLD,), silent=(),
        )
    )  # fmt: skip
    found = goodput(training.run, training.clock)
    assert found is not None
    assert found.seconds == pytest.approx({kind: 48.0, "starting": 4.0})


def test_later_attempt_without_reports_is_unknown_after_longer_than_the_usual_interval() -> None:
    training = reporting([20.0, 30.0, 40.0], 60)
    training.end("died")
    training.start()
    usual = goodput(training.run, training.clock + 10)
    late = goodput(training.run, training.clock + 3_600)
    assert usual is not None
    assert late is not None
    assert usual.unknown_s == 0.0
    assert late.unknown_s == pytest.approx(3_608)
    assert late.percent is not None
    assert late.percent < 3


def test_attempt_that_starts_does_not_stall() -> None:
    training = trained(Training(saves=1e9), 300)
    training.end("died")
    training.start()
    assert stall(training.run, training.clock + 200) is None


def test_thinned_past_has_no_stalls() -> None:
    """A series of more points than fit keeps its past at longer and longer gaps."""
    training = trained(Training(saves=1e9), 60)
    run = training.run
    at_s = training.clock
    for _ in range(60_000):
        at_s += 10.0
        run.curves.append("step_time_s", at_s, 0.1)
    times = run.curves["step_time_s"].times
    assert max(after - before for before, after in pairwise(times)) > 30
    assert stalls(run, at_s) == []


def test_status_shows_the_stall_and_what_the_pace_allows() -> None:
    training = trained(Training(saves=1e9), 300)
    lines = list(run_lines(training.run, training.clock + 195))
    assert "STALLED for 3 m 15 s" in lines[0]
    assert lines[1].startswith("No step, report or checkpoint since then")


def test_hang_that_the_ranks_explain_is_a_stall_before_the_reports_show_it() -> None:
    """Reports come every 60 s; the watchdog sees after 31 s that rank 0 waits for rank 1."""
    training = reporting([60.0 * n for n in range(1, 8)], 430)
    dumped_s = training.clock + 31.0
    training.tell(
        RanksDumped(
            at_s=dumped_s, source="telemetry", run_id=RUN, attempt=1,
            dumps=(dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)),
            stacks=(LOOP, REDUCE), groups=(WORLD,),
        )
    )  # fmt: skip
    assert stall(training.run, dumped_s + 1) == Stall(training.clock, 20.0)
    assert stalls(training.run, dumped_s + 1) == [(training.clock, dumped_s + 1)]
    status, _, hang, *_ = run_lines(training.run, dumped_s + 1)
    assert "STALLED for 32.0 s" in status
    assert hang.startswith("Rank 1 never called all_reduce #3")
    assert hang.endswith(" See: cockpit hang")
    found = goodput(training.run, dumped_s + 1)
    assert found is not None
    assert found.lost_s["stalled"] == pytest.approx(32)


def test_past_of_a_long_run_that_was_thinned_has_no_long_pauses() -> None:
    training = trained(Training(saves=1e9), 60)
    at_s, run, missed = training.clock, training.run, []
    limits = Thresholds()
    for count in range(1, 320_001):
        at_s += 1.0
        run.curves.append("step_time_s", at_s, 0.1)
        if count > 300_000 and count % 1_000 == 0:
            attempt = run.attempt
            assert attempt is not None
            if stall(run, at_s + 31) is None or pause_limit_s(run, attempt, limits) > limits.hung_s:
                missed.append(count)
    assert missed == []
