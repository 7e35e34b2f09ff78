"""The cost of an analysis: linear in the ranks, and independent of the run's length."""

from __future__ import annotations

from collections.abc import Callable

from cockpit.insight.detectors.findings import findings
from cockpit.insight.metrics.diagnosis import diagnosis
from cockpit.insight.metrics.progress import LastUpdates
from cockpit.model.event import HistoryLoaded
from cockpit.store.run import RUN_POINTS
from tests.growth import growth
from tests.insight.training_run import RUN, T0, Training


def after_minutes(ranks: int) -> Training:
    training = Training(ranks=ranks, gpus=True)
    training.start()
    for tick in range(110):
        training.now_s += 6.0
        training.healthy()
        training._tick(saving=tick % 20 == 19)
    return training


def after_hours(ranks: int) -> Training:
    training = after_minutes(ranks)
    old = tuple(T0 - 4.0 * n for n in range(RUN_POINTS - 200, 0, -1))
    for name in ("loss", "step_time_s", "samples_per_s", "checkpoint_s"):
        training.tell(
            HistoryLoaded(
                at_s=T0, source="prometheus", run_id=RUN, metric=name, times=old,
                values=tuple(1.0 + (n % 7) / 100 for n in range(len(old))),
            )
        )  # fmt: skip
    assert len(training.run.curves["step_time_s"]) > RUN_POINTS // 2
    return training


def finding(training: Training) -> Callable[[], None]:
    updates = LastUpdates()

    def look() -> None:
        updates.note(training.run, training.clock)
        found = findings(training.store, training.run, training.clock, last_updates=updates)
        assert [it.kind for it in found if it.kind != "low-goodput"] == []

    return look


def diagnosing(training: Training) -> Callable[[], None]:
    def look() -> None:
        assert diagnosis(training.store, training.run, training.clock).shares is not None

    return look


def test_a_check_grows_with_the_ranks_and_not_with_their_square() -> None:
    few, many = after_minutes(100), after_minutes(1_000)
    assert growth(finding(few), finding(many)) < 20
    assert growth(diagnosing(few), diagnosing(many)) < 20


def test_a_check_after_hours_costs_little_more_than_after_minutes() -> None:
    short, long = after_minutes(300), after_hours(300)
    points = len(long.run.curves["step_time_s"]) / len(short.run.curves["step_time_s"])
    assert growth(finding(short), finding(long)) < 5 < points
    assert growth(diagnosing(short), diagnosing(long)) < 2 * points  # it reads a complete curve
