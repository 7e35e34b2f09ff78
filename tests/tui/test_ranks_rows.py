"""Which ranks are shown, in which order, and their summary."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cockpit.model.event import RankSampled
from cockpit.model.run import Spread
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from cockpit.tui.rows import filter as condition
from cockpit.tui.rows.sort import Order
from cockpit.tui.views.ranks.distribution import distribution
from cockpit.tui.views.ranks.rows import MARKS, RankRows, is_stale, stale_after_s
from tests.growth import growth
from tests.tui.simulated import RUN, START_S, Simulation, wide

NAMES = {"gpu": "gpu", "step_time": "step_time_s", "node": "node", "rank": "rank", "loss": "loss"}


def sixteen() -> Simulation:
    simulation = wide(16, until_s=20)
    simulation.advance(20)
    simulation.session.drain()
    return simulation


def seen(simulation: Simulation) -> tuple[Store, RunView]:
    run = current_run(simulation.session.store)
    assert run is not None
    return simulation.session.store, run


def ranks(simulation: Simulation, order: Order) -> list[int]:
    store, run = seen(simulation)
    shown = RankRows().rows(store, run, simulation.now_s, order)
    return [int(key) for key in shown.rows.keys]


def tell(simulation: Simulation, rank: int, **changes: object) -> None:
    """The rank reports other values, shortly afterwards."""
    _, run = seen(simulation)
    sample = run.ranks[rank].sample
    assert sample is not None
    other = replace(sample, at_s=sample.at_s + 0.1, **changes)
    event = RankSampled(at_s=other.at_s, source="telemetry", run_id=RUN, samples=(other,))
    simulation.session.store.apply(event)


def test_ranks_sort_by_the_number_and_what_is_unknown_comes_last_either_way() -> None:
    simulation = sixteen()
    tell(simulation, 3, step_time_s=2.0)
    tell(simulation, 9, step_time_s=None)
    tell(simulation, 5, step_time_s=0.001)
    up = ranks(simulation, Order(by="step_time_s"))
    down = ranks(simulation, Order(by="step_time_s", down=True))
    assert (up[0], up[-2], up[-1]) == (5, 3, 9)
    assert (down[0], down[-2], down[-1]) == (3, 5, 9)


def test_names_sort_by_the_numbers_in_them() -> None:
    simulation = wide(100, until_s=20)
    simulation.advance(20)
    simulation.session.drain()
    _, run = seen(simulation)
    placed = ranks(simulation, Order(by="pod"))
    assert placed == sorted(placed), "pod 2 comes before pod 10"
    assert len(run.ranks) == 100


def test_nan_sorts_as_the_largest() -> None:
    simulation = sixteen()
    tell(simulation, 7, loss=math.nan)
    assert ranks(simulation, Order(by="loss", down=True))[0] == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step_time>1.2", [3]),
        ("step_time > 1200ms", [3]),
        ("gpu<50 node=10.0.0.11", [2]),
        ("rank>=14", [14, 15]),
        ("rank=1", [1]),
        ("rank!=1 rank<3", [0, 2]),
        ("node~.12 rank<10", [8, 9]),
        ("h200-2 rank<9", [8]),
        ("warning", [4]),
        ("warning~xid", [4]),
        ("gpu_memory>=104GiB rank<8", [7]),
        ("data>50%", []),
    ],
)
def test_a_filter_compares_columns(text: str, expected: list[int]) -> None:
    simulation = sixteen()
    tell(simulation, 3, step_time_s=1.5)
    tell(simulation, 2, gpu_utilization_percent=10.0)
    tell(simulation, 4, gpu_xid=79)
    assert ranks(simulation, Order(text=text)) == expected


def test_a_filter_that_is_not_understood_reports_it_and_hides_nothing() -> None:
    simulation = sixteen()
    store, run = seen(simulation)
    rows = RankRows()
    shown = rows.rows(store, run, simulation.now_s, Order(text="speed>3"))
    assert len(shown.rows) == 16
    assert "there is no column speed" in shown.problem
    shown = rows.rows(store, run, simulation.now_s, Order(text="gpu<fast"))
    assert "fast is not a number" in shown.problem


def test_incomplete_comparisons_are_text_and_equality_uses_the_typed_digits() -> None:
    assert condition.parsed("gpu<", NAMES).terms == ("gpu<",)
    assert condition.parsed("STALE x", NAMES, MARKS).marks == ("stale",)
    [test] = condition.parsed("loss=0.35", NAMES).tests
    assert test.holds(0.349)
    assert not test.holds(0.356)
    assert not test.holds(None)
    [test] = condition.parsed("loss=nan", NAMES).tests
    assert test.holds(math.nan)
    assert condition.number("1.5ms") == pytest.approx(0.0015)
    assert condition.number("2 GiB") == 2 * 2**30
    assert condition.number("fast") is None


def test_a_rank_of_a_small_world_is_stale_after_seconds() -> None:
    simulation = sixteen()
    _, run = seen(simulation)
    assert not is_stale(run, run.ranks[0], START_S + 24)
    assert is_stale(run, run.ranks[0], START_S + 26)


def test_rank_of_a_large_world_is_stale_only_when_the_stream_reports_it() -> None:
    simulation = wide(1000, until_s=20)
    simulation.advance(20)
    simulation.session.drain()
    store, run = seen(simulation)
    spread = Spread("step_time_s", 990, 0.05, 0.04, 0.045, 0.05, 0.055, 0.06, 12, 17)
    store.apply(
        RankSampled(
            at_s=START_S + 30,
            source="telemetry",
            run_id=RUN,
            samples=(),
            spreads=(spread,),
            attempt=1,
            reporting=999,
            silent=(17,),
        )
    )
    now_s = START_S + 32
    assert stale_after_s(run) == 5 + 16
    rows = RankRows()
    shown = rows.rows(store, run, now_s, Order())
    assert shown.stale == (17,)
    assert "warning" in [column.key for column in rows.columns]
    field = rows.field("step_time_s")
    assert field is not None
    found = rows.distribution(field)
    assert found is not None
    assert (found.count, found.p50, found.high_rank) == (990, 0.05, 17), "of all, not of the told"
    assert is_stale(run, run.ranks[0], START_S + 20 + 22)


def test_outliers_are_named_the_farthest_first_and_nan_before_all() -> None:
    values = [(rank, 1.0 + 0.01 * (rank % 5)) for rank in range(50)]
    values += [(50, 1.5), (51, 3.0), (52, math.nan)]
    found = distribution(values)
    assert found is not None
    assert found.outliers == (52, 51, 50)
    assert found.high_rank == 51
    assert [found.level(value) for value in (0.1, 1.02, 1.1, 3.0)] == [0, 2, 3, 4]


def test_equals_are_all_usual() -> None:
    found = distribution([(rank, 1.0 + 0.001 * (rank % 7)) for rank in range(100)])
    assert found is not None
    assert {found.level(1.0 + 0.001 * n) for n in range(7)} == {2}
    assert found.outliers == ()
    assert distribution([(0, math.nan)]) is None


def test_a_warning_column_stays_once_it_came() -> None:
    simulation = sixteen()
    store, run = seen(simulation)
    rows = RankRows()
    rows.rows(store, run, simulation.now_s, Order())
    assert "warning" not in [column.key for column in rows.columns]
    for throttle in ("power cap", ""):
        sample = run.ranks[4].sample
        assert sample is not None
        tell(simulation, 4, gpu_throttle=throttle)
        shown = rows.rows(store, run, simulation.now_s, Order())
        at = [column.key for column in rows.columns].index("warning")
        expected = f"throttled: {throttle}" if throttle else ""
        assert shown.rows[4].cells[at].text == expected


def test_a_check_at_a_thousand_ranks_costs_ten_times_one_at_a_hundred() -> None:
    def looking(ranks: int) -> Callable[[], None]:
        simulation = wide(ranks, until_s=20)
        simulation.advance(20)
        simulation.session.drain()
        store, run = seen(simulation)
        rows = RankRows()

        def look() -> None:
            order = Order(by="step_time_s", text=f"rank<{ranks - ranks // 10}")
            shown = rows.rows(store, run, simulation.now_s, order)
            assert len(shown.rows[0:40]) == 40
            field = rows.field("step_time_s")
            assert field is not None
            rows.distribution(field)

        return look

    assert growth(looking(100), looking(1000)) < 20
