"""The store of large and long runs: bounded, and accurate for all ranks."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from msgspec.structs import replace

from cockpit.model.alert import Alert, Finding, PastAlert, Severity
from cockpit.model.event import (
    AlertCleared,
    AlertHandled,
    AlertRaised,
    AttemptStarted,
    HistoryLoaded,
    PastAlertsLoaded,
    PhaseEntered,
    RankSampled,
    TrialsListed,
)
from cockpit.model.run import Phase, Placement, Spread, Trial, TrialStatus
from cockpit.store.run import ALL_RANKS_POINTS
from cockpit.store.series import Curves, Series
from cockpit.store.store import Store
from tests.events import RUN, before_the_kill, reduced, sample, tick

WORLD = 1_000


def spread(name: str, mean: float, high: float = 0.0) -> Spread:
    return Spread(name, WORLD, mean, mean / 2, mean * 0.8, mean, mean * 1.2, high or mean * 2, 7, 9)


def wide(
    at_s: float, *spreads: Spread, ranks: int = 64, stale: tuple[int, ...] = ()
) -> RankSampled:
    first = int(at_s) * ranks % WORLD
    reported = tuple(
        sample((first + n) % WORLD, 1, at_s, int(at_s), int(at_s)) for n in range(ranks)
    )
    return RankSampled(
        at_s=at_s,
        source="telemetry",
        run_id=RUN,
        samples=reported,
        spreads=spreads,
        attempt=1,
        reporting=WORLD - len(stale),
        silent=stale,
    )


def a_large_world() -> Store:
    placed = tuple(Placement(rank, f"n{rank}", "10.0.0.1", rank) for rank in range(WORLD))
    start = AttemptStarted(at_s=1.0, source="telemetry", run_id=RUN, attempt=1, placements=placed)
    return reduced([start])


def test_a_large_worlds_curves_are_of_all_ranks_and_not_of_those_reported_in_turn() -> None:
    store = a_large_world()
    store.apply(
        wide(
            10.0,
            spread("samples_per_s", 100.0),
            spread("loss", 2.0),
            spread("step", 500.0, high=512.0),
            stale=(13,),
        )
    )
    run = store.runs[RUN]
    assert run.curves["samples_per_s"].last == 100.0 * WORLD
    assert run.curves["loss"].last == 2.0
    assert (run.bands["loss.p10"].last, run.bands["loss.p90"].last) == (1.6, 2.4)
    assert run.step == 512
    assert (run.reporting, run.silent) == (WORLD - 1, (13,))
    assert run.samples_seen == 64


def test_all_ranks_of_a_large_world_together_stay_within_their_points() -> None:
    store = a_large_world()
    for second in range(2, 6_000):
        store.apply(wide(float(second), spread("loss", 2.0)))
    run = store.runs[RUN]
    assert len(run.ranks) == WORLD
    kept = sum(len(rank.curves["loss"]) for rank in run.ranks.values())
    assert 0.4 * ALL_RANKS_POINTS < kept <= ALL_RANKS_POINTS


def test_a_small_world_has_no_percentiles_and_one_of_eight_has() -> None:
    store = reduced(before_the_kill())
    assert "loss.p10" not in store.runs[RUN].bands
    eight = tick(1, 100.0, 51, 60, ranks=8)
    losses = [replace(reported, loss=float(reported.rank)) for reported in eight.samples]
    store.apply(replace(eight, samples=tuple(losses)))
    bands = store.runs[RUN].bands
    assert (bands["loss.p10"].last, bands["loss.p90"].last) == (1.0, 6.0)


def test_a_band_leaves_out_what_is_not_finite() -> None:
    store = a_large_world()
    event = tick(1, 100.0, 51, 60, ranks=9)
    losses = [
        math.nan if reported.rank == 3 else float(reported.rank) for reported in event.samples
    ]
    samples = tuple(replace(t, loss=v) for t, v in zip(event.samples, losses, strict=True))
    store.apply(replace(event, samples=samples))
    run = store.runs[RUN]
    assert math.isnan(run.curves["loss"].last or 0.0)
    assert run.bands["loss.p90"].last == 7.0


@pytest.mark.parametrize("capacity", [8, 60, 100, 901])
def test_a_full_series_still_has_its_beginning_and_its_newest_third_whole(capacity: int) -> None:
    series = Series(capacity)
    for second in range(20_000):
        series.append(float(second), float(second))
        assert len(series) <= capacity
    assert series.times[0] < 20_000 / (capacity / 8)
    newest = list(series.times)[-(capacity // 3) :]
    assert newest == [float(second) for second in range(20_000 - len(newest), 20_000)]
    gaps = [after - before for before, after in pairwise(series.times)]
    assert min(gaps) > 0
    assert max(gaps) <= 20_000 / (capacity / 8), "the past is spaced evenly"
    for at_s, value in series:
        assert value == pytest.approx(at_s), "a mean of neighbours lies on the line"


def test_a_nan_is_still_there_when_it_is_long_past() -> None:
    series = Series(64)
    for second in range(4_000):
        series.append(float(second), math.nan if second == 3 else 1.0)
    assert math.isnan(series.values[0])
    assert not any(map(math.isnan, series.values[1:])), "and does not spread"


def test_a_clock_that_was_far_ahead_leaves_nothing_in_the_future() -> None:
    series = Series(64)
    for second in (*range(100), *range(10_000, 10_003), *range(103, 110)):
        series.append(float(second), float(second))
    assert list(series.times) == sorted(series.times)
    assert list(series)[-8:] == [(float(s), float(s)) for s in (99, *range(103, 110))]


def test_late_point_is_stored_at_the_newest_time() -> None:
    series = Series(64)
    for at_s in (1.0, 2.0, 1.5, 3.0):
        series.append(at_s, at_s)
    assert list(series) == [(1.0, 1.0), (2.0, 2.0), (2.0, 1.5), (3.0, 3.0)]


def test_a_rank_whose_clock_is_set_back_continues() -> None:
    store = reduced([*before_the_kill(), tick(1, 5_000.0, 51, 60), tick(1, 101.0, 61, 70)])
    run = store.runs[RUN]
    assert run.step == 70
    assert run.ranks[0].sample is not None
    assert run.ranks[0].sample.at_s == 101.0
    assert run.curves["loss"].times[-1] == 101.0


def test_sums_beyond_what_a_float_holds_are_infinite() -> None:
    event = tick(1, 101.0, 51, 60)
    huge = tuple(replace(reported, samples_per_s=1.7e308) for reported in event.samples)
    run = reduced([*before_the_kill(), replace(event, samples=huge)]).runs[RUN]
    assert run.curves["samples_per_s"].last == math.inf


def test_history_goes_before_what_was_seen_and_never_over_it() -> None:
    store = reduced(before_the_kill())
    curve = store.runs[RUN].curves["loss"]
    seen = list(curve)
    first_s = seen[0][0]
    times = (first_s - 20, first_s - 10, first_s, first_s + 1)
    event = HistoryLoaded(
        at_s=200.0,
        source="prometheus",
        run_id=RUN,
        metric="loss",
        times=times,
        values=(9.0, 8.0, 7.0, 6.0),
    )
    store.apply(event)
    assert list(curve) == [(first_s - 20, 9.0), (first_s - 10, 8.0), *seen]
    store.apply(event)
    assert len(curve) == len(seen) + 2, "the same history again changes nothing"


def test_unreported_curve_is_empty_and_is_not_created_by_reading() -> None:
    curves = Curves(10)
    assert len(curves["loss"]) == 0
    assert "loss" not in curves
    curves.append("loss", 1.0, 2.0)
    assert list(curves) == ["loss"]


def test_phases_are_in_order_of_time_and_a_record_that_comes_twice_counts_once() -> None:
    def entered(at_s: float, phase: Phase) -> PhaseEntered:
        return PhaseEntered(at_s=at_s, source="telemetry", run_id=RUN, attempt=1, phase=phase)

    store = reduced(
        [
            entered(1.0, Phase.SCHEDULING),
            entered(4.0, Phase.RUNNING),
            entered(2.0, Phase.ACTOR_START),
            entered(4.0, Phase.RUNNING),
        ]
    )
    assert [(at_s, phase) for at_s, _, phase in store.runs[RUN].phases] == [
        (1.0, Phase.SCHEDULING),
        (2.0, Phase.ACTOR_START),
        (4.0, Phase.RUNNING),
    ]


def test_a_trial_that_is_left_out_stays_as_it_was() -> None:
    def listed(*trials: Trial, metric: str = "") -> TrialsListed:
        return TrialsListed(
            at_s=1.0, source="telemetry", experiment="search", trials=trials, metric=metric
        )

    one = Trial("a", "search", TrialStatus.RUNNING)
    two = Trial("b", "search", TrialStatus.PENDING)
    store = reduced(
        [listed(one, two, metric="loss"), listed(replace(two, status=TrialStatus.TERMINATED))]
    )
    experiment = store.experiments["search"]
    assert experiment.metric == "loss"
    assert [trial.status for trial in experiment.trials.values()] == ["RUNNING", "TERMINATED"]


def test_an_alert_keeps_what_the_user_did_until_it_is_over() -> None:
    finding = Finding("loss-nan", "run 1", Severity.CRITICAL, "the loss is NaN")
    raised = AlertRaised(
        at_s=1.0, source="insight", alert=Alert("loss-nan/run 1", finding, raised_s=1.0)
    )
    store = reduced(
        [
            raised,
            AlertHandled(at_s=2.0, source="user", alert_id="loss-nan/run 1", snoozed_until_s=60.0),
            raised,
        ]
    )
    view = store.alerts["loss-nan/run 1"]
    assert (view.acknowledged_s, view.snoozed_until_s) == (2.0, 60.0)
    store.apply(AlertCleared(at_s=5.0, source="insight", alert_id="loss-nan/run 1"))
    store.apply(AlertCleared(at_s=6.0, source="insight", alert_id="loss-nan/run 1"))
    assert not store.alerts
    assert [past.cleared_s for past in store.alerts_past] == [5.0]


def test_alerts_of_the_past_are_added_in_order_and_none_twice() -> None:
    def past(kind: str, raised_s: float, cleared_s: float) -> PastAlert:
        finding = Finding(kind, "run 1", Severity.WARNING, "Raised by the rules of Prometheus")
        return PastAlert(Alert(f"{kind}/run 1", finding, raised_s), cleared_s)

    def loaded(*alerts: PastAlert) -> PastAlertsLoaded:
        return PastAlertsLoaded(at_s=900.0, source="prometheus", run_id="1", alerts=alerts)

    store = Store()
    own = past("hung-run", 300.0, 400.0)
    store.apply(AlertRaised(at_s=300.0, source="alerts", alert=own.alert))
    store.apply(AlertCleared(at_s=400.0, source="alerts", alert_id=own.alert.id))
    before, after = past("hung-run", 100.0, 200.0), past("stuck-start", 500.0, 600.0)
    for _ in range(2):
        store.apply(loaded(before, past("hung-run", 330.0, 420.0), after))
    shown = [(view.alert.finding.kind, view.cleared_s) for view in store.alerts_past]
    assert shown == [("hung-run", 200.0), ("hung-run", 400.0), ("stuck-start", 600.0)]
    store.apply(AlertRaised(at_s=700.0, source="alerts", alert=past("hung-run", 700.0, 0.0).alert))
    store.apply(loaded(past("hung-run", 710.0, 800.0)))
    assert len(store.alerts_past) == 3, "it is still raised here"
