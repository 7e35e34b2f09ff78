from __future__ import annotations

import math

from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.event import AlertCleared, AlertRaised
from cockpit.store.run import RankView, RunView
from cockpit.store.store import Store
from cockpit.tui.views.charts.available_charts import (
    LOSS,
    STEP_PARTS,
    THROUGHPUT,
    plots_of,
)
from cockpit.tui.views.charts.curve_builder import (
    Compared,
    CurveBuilder,
    marks_on,
    outliers,
    reach_of,
)
from cockpit.tui.views.charts.curve_cache import step_at, time_at
from cockpit.tui.views.charts.curves import marks_of
from cockpit.tui.views.charts.viewport import Viewport
from cockpit.tui.widgets.chart.axis import Axis
from cockpit.tui.widgets.chart.marks import Mark

BY_STEP = Viewport(axis=Axis.STEP)


def run_of(name: str, begun_s: float, seconds: int, steps_a_second: int = 10) -> RunView:
    run = RunView(name, name)
    for second in range(seconds):
        at_s = begun_s + second
        run.progress.append(at_s, float(second * steps_a_second))
        run.curves.append("loss", at_s, 2.0 - second / 100)
    return run


def test_another_run_begins_where_this_one_does() -> None:
    run, other = run_of("new", 5000.0, 50), run_of("old", 1000.0, 90)
    one, two = CurveBuilder().curves(LOSS, run, [Compared("old", other)], Viewport())
    assert (one.label, two.label) == ("new", "old")
    assert one.times[0] == two.times[0] == 5000.0
    assert two.times[-1] == 5089.0
    assert one.color != two.color
    reach = reach_of(run, [Compared("old", other)], Viewport(), 5050.0)
    assert reach == (5000.0, 5050.0, 5089.0)


def test_by_step_two_runs_stand_at_their_steps() -> None:
    run, other = run_of("new", 5000.0, 50), run_of("old", 1000.0, 50, steps_a_second=20)
    one, two = CurveBuilder().curves(LOSS, run, [Compared("old", other)], BY_STEP)
    assert (one.times[-1], two.times[-1]) == (490.0, 980.0)
    assert reach_of(run, [Compared("old", other)], BY_STEP, 5050.0) == (0.0, 490.0, 980.0)


def test_curves_include_new_points() -> None:
    run, builder = run_of("r", 0.0, 50), CurveBuilder()
    smooth = Viewport(axis=Axis.STEP, weight=0.9)
    before = builder.curves(LOSS, run, [], smooth)[0]
    size = len(before.times)
    run.progress.append(50.0, 500.0)
    run.curves.append("loss", 50.0, 9.0)
    after = builder.curves(LOSS, run, [], smooth)[0]
    assert after.points is before.points
    assert len(after.times) == size + 1
    assert after.raw is not None
    assert after.raw.source.values[-1] == 9.0
    assert after.values[-1] < 9.0


def test_of_many_ranks_the_ends_and_the_middle_are_drawn() -> None:
    ranks = []
    for number in range(1000):
        rank = RankView(number)
        for second in range(10):
            value = math.nan if number == 500 else float((number * 7) % 1000)
            rank.curves.append("loss", float(second), value)
        ranks.append(rank)
    chosen = outliers(ranks, "loss", 8)
    judged = sorted((rank * 7) % 1000 for rank in chosen if rank != 500)
    assert 500 in chosen
    assert judged[:3] == [0, 1, 2]
    assert judged[-2:] == [998, 999]
    assert all(490 < value < 510 for value in judged[3:5])


def test_charts_are_those_that_have_data_and_reported_ones() -> None:
    run = run_of("r", 0.0, 3)
    assert plots_of([run]) == [LOSS]
    run.curves.append("data_wait_s", 0.0, 0.1)
    run.curves.append("comm_s", 0.0, 0.1)
    run.reported.append("accuracy", 0.0, 0.5)
    run.curves.append("samples_per_s", 0.0, 0.5)
    names = [plot.id for plot in plots_of([run])]
    assert names == [
        LOSS.id,
        THROUGHPUT.id,
        STEP_PARTS.id,
        "data_wait_s",
        "comm_s",
        "reported accuracy",
    ]


def test_step_parts_are_curves_of_one_chart() -> None:
    run = run_of("r", 0.0, 3)
    for name in ("data_wait_s", "comm_s"):
        run.curves.append(name, 1.0, 0.1)
    assert [c.label for c in CurveBuilder().curves(STEP_PARTS, run, [], Viewport())] == [
        "data wait",
        "comm",
    ]


def test_bands_lie_on_the_axis_of_their_curve() -> None:
    run = run_of("r", 100.0, 30)
    for second in range(30):
        run.bands.append("loss.p10", 100.0 + second, 1.0)
        run.bands.append("loss.p90", 100.0 + second, 3.0)
    curve = CurveBuilder().curves(LOSS, run, [], BY_STEP)[0]
    assert curve.band is not None
    assert list(curve.band[0].source.times) == list(curve.times)


def test_a_step_has_its_time_and_a_time_its_step() -> None:
    run = run_of("r", 100.0, 30)
    assert step_at(run, 110.5) == 105.0
    assert time_at(run, 105.0) == 110.5
    assert step_at(run, 50.0) is None
    assert time_at(run, 9999.0) is None
    run.progress.append(200.0, 95.0)  # a restart
    run.progress.append(210.0, 105.0)
    assert time_at(run, 100.0) == 205.0


def test_alerts_are_marked_when_they_were_raised_and_cleared() -> None:
    store = Store()
    store.runs["r"] = run = run_of("r", 100.0, 30)
    for number, run_id in enumerate(("r", "another")):
        finding = Finding("loss-nan", f"run {run_id}", Severity.CRITICAL, "NaN", run_id=run_id)
        alert = Alert(f"loss-nan/{number}", finding, 110.0)
        store.apply(AlertRaised(at_s=110.0, source="insight", alert=alert))
    store.apply(AlertCleared(at_s=120.0, source="insight", alert_id="loss-nan/0"))
    marks = marks_of(store, run)
    assert marks == [Mark(110.0, "loss-nan", "alert"), Mark(120.0, "loss-nan cleared", "cleared")]
    assert [mark.at for mark in marks_on(marks, run, BY_STEP)] == [100.0, 200.0]
