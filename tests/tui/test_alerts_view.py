"""View 8: alerts are acknowledged, snoozed and explained, above the diagnosis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from textual.pilot import Pilot

from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from cockpit.tui.main.screen import MainScreen
from cockpit.tui.terminal.symbols import Symbols, use_symbols
from cockpit.tui.views.ranks.page import RankScreen
from cockpit.tui.widgets.bars.shares import Part, bar, legend
from cockpit.tui.widgets.table.table import LineTable
from tests.tui.alerting import INPUT, NAN, STRAGGLER, troubled
from tests.tui.conftest import Open
from tests.tui.simulated import START_S, Simulation, digits, wide

Compare = Callable[..., bool]
AT_S = 150.0


async def test_the_worst_alert_comes_first_and_what_is_over_last(cockpit: Open) -> None:
    async with cockpit(at_s=AT_S, simulation=troubled()) as seen:
        await seen.press("8")
        await seen.sees("3 raised, 1 cleared", "NaN or infinite loss on rank 1", "try  Stop")
        table = seen.app.screen.query_one("#alerts", LineTable)
        kinds = [row.cells[4].text for row in table.rows]
        assert kinds == ["loss-nan", "straggler", "input-bound", "hung-run"]
        assert [row.cells[1].text for row in table.rows] == ["raised", "raised", "acked", "cleared"]


async def test_the_details_follow_the_cursor(cockpit: Open) -> None:
    async with cockpit(at_s=AT_S, simulation=troubled(), size=(120, 40)) as seen:
        await seen.press("8", "j")
        await seen.sees(
            "45 % of each step is lost waiting for it  since 08:02:00", "its earlier time"
        )
        await seen.press("j", "j")
        await seen.sees("cleared at 08:01:39")


async def test_a_reports_that_the_alert_was_seen_and_z_that_it_can_wait(cockpit: Open) -> None:
    async with cockpit(at_s=AT_S, simulation=troubled()) as seen:
        alerts = seen.app.store.alerts
        await seen.press("8", "a")
        await seen.until(lambda: alerts[NAN].acknowledged_s == START_S + AT_S)
        seen.app.tick()
        await seen.press("g", "z")
        await seen.until(lambda: alerts[STRAGGLER].snoozed_until_s == START_S + AT_S + 900)
        seen.app.tick()
        await seen.sees("snoozed for 15 m")
        table = seen.app.screen.query_one("#alerts", LineTable)
        assert {row.key: row.cells[1].text for row in table.rows}[NAN] == "acked"


async def test_z_for_long_is_an_hour_and_all_can_be_seen_at_once(cockpit: Open) -> None:
    async with cockpit(at_s=AT_S, simulation=troubled()) as seen:
        alerts = seen.app.store.alerts
        await seen.press("1", "A", "8", "Z")
        await seen.until(lambda: alerts[NAN].snoozed_until_s == START_S + AT_S + 3600)
        assert alerts[STRAGGLER].acknowledged_s is None, "A works only in this view"
        await seen.press("A")
        await seen.until(lambda: all(view.acknowledged_s for view in alerts.values()))
        assert alerts[NAN].snoozed_until_s == START_S + AT_S + 3600
        assert alerts[INPUT].acknowledged_s == START_S + 135


async def test_an_alert_that_is_over_cannot_be_handled(cockpit: Open) -> None:
    async with cockpit(at_s=AT_S, simulation=troubled()) as seen:
        await seen.press("8", "G", "a")
        await seen.until(lambda: "This alert is already cleared." in seen.toasts)


async def test_enter_on_the_alert_of_a_rank_opens_its_page(cockpit: Open) -> None:
    async with cockpit(at_s=AT_S, simulation=troubled()) as seen:
        await seen.press("8", "j", "enter")
        await seen.until(lambda: isinstance(seen.app.screen, RankScreen))


async def test_the_keys_of_charts_do_nothing_here_and_the_other_way_round(cockpit: Open) -> None:
    async with cockpit(at_s=AT_S, simulation=troubled()) as seen:
        await seen.press("3", "a", "z")
        alerts = seen.app.store.alerts
        assert all(view.acknowledged_s is None for key, view in alerts.items() if key != INPUT)


async def test_a_filter_leaves_only_what_holds_it(cockpit: Open) -> None:
    async with cockpit(at_s=AT_S, simulation=troubled()) as seen:
        await seen.press("8", "slash", *"rank 1", "enter")
        await seen.sees("2 of 4 with “rank 1”")


async def test_without_a_run_nothing_is_claimed(cockpit: Open) -> None:
    async with cockpit(at_s=6) as seen:
        await seen.press("8")
        await seen.sees("No run yet. Press L", "not known: no training run yet")


async def test_the_diagnosis_goes_by_the_settings_of_who_watches(cockpit: Open) -> None:
    from cockpit.alerts.monitor import AlertMonitor
    from cockpit.alerts.settings import AlertSettings
    from cockpit.insight.detectors.thresholds import Thresholds

    simulation = wide(16, until_s=60)
    session = simulation.session
    settings = AlertSettings(Thresholds(price_per_gpu_hour=1_000.0, window_s=1e-6))
    async with cockpit(at_s=60, simulation=simulation, size=(120, 36)) as seen:
        await seen.sees("bound by")
        vars(session)["alerts"] = AlertMonitor(session.dispatch, lambda: session.store, settings)
        await seen.advance(62)
        await seen.until(lambda: "bound by" not in seen.text)
        await seen.press("8")
        await seen.sees("of it in lost time")


async def test_a_quiet_screen_paints_nothing_but_ages(cockpit: Open) -> None:
    from tests.tui.stage import watch_repaints

    async with cockpit(at_s=AT_S, simulation=troubled()) as seen:
        await seen.press("8")
        await seen.sees("3 raised")
        repaints = watch_repaints(seen.app.screen.query_one("#goodput"))
        seen.app.redraw()
        await seen.pilot.pause()
        assert repaints == []


def test_a_bar_of_shares_fills_its_width_for_any_rounding() -> None:
    parts = [Part(str(n), 100 / 7, "good") for n in range(7)]
    for width in (1, 5, 20, 33, 100):
        line = bar(parts, width, Symbols.BLOCK)
        assert sum(len(text) for text, _ in line) == width
    rest = bar([Part("half", 50.0, "good")], 10, Symbols.ASCII)
    assert [text for text, _ in rest] == ["     ", "....."]
    named = legend([Part("input", 30.2, "bad"), Part("none", 0.2, "good")], 40, Symbols.ASCII)
    assert "".join(text for text, _ in named) == "* input 30 %  "


@pytest.fixture
def started() -> Iterator[Callable[[Simulation, float], CockpitApp]]:
    simulations: list[Simulation] = []

    def start(simulation: Simulation, at_s: float) -> CockpitApp:
        simulations.append(simulation)
        simulation.advance(at_s)
        simulation.session.start()
        connection = Connection(simulation.session, simulation.actions)
        return CockpitApp(lambda say: connection, cluster="local:demo")

    yield start
    for simulation in simulations:
        simulation.session.close()


async def shown(pilot: Pilot[int], *keys: str) -> None:
    app = pilot.app
    assert isinstance(app, CockpitApp)
    async with asyncio.timeout(20):
        while app.connection is None or not app.capabilities:
            await pilot.pause(0.02)
    assert isinstance(app.screen, MainScreen)
    await app.screen.action_view("alerts")
    for key in keys:
        await pilot.press(key)
    # The recovery is reported once, in a toast that would cover the snapshot.
    app.tick()
    app.clear_notifications()
    await pilot.pause()
    app.redraw()


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_alerts_and_diagnosis(
    started: Callable[[Simulation, float], CockpitApp],
    snap_compare: Compare,
    size: tuple[int, int],
) -> None:
    app = started(troubled(), AT_S)
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: shown(pilot, "j"))


def test_alerts_of_a_thousand_ranks_with_gpus(
    started: Callable[[Simulation, float], CockpitApp], snap_compare: Compare
) -> None:
    app = started(wide(1000, until_s=30), 30)
    assert snap_compare(app, terminal_size=(120, 36), run_before=lambda pilot: shown(pilot))


def test_alerts_in_ascii(
    started: Callable[[Simulation, float], CockpitApp], snap_compare: Compare
) -> None:
    use_symbols(Symbols.ASCII)
    try:
        app = started(troubled(), AT_S)
        assert snap_compare(app, terminal_size=(80, 24), run_before=lambda pilot: shown(pilot))
    finally:
        use_symbols(None)


def test_no_alert_of_a_run_that_is_well(
    started: Callable[[Simulation, float], CockpitApp], snap_compare: Compare
) -> None:
    app = started(digits(kill_s=None), 60)
    assert snap_compare(app, terminal_size=(80, 24), run_before=lambda pilot: shown(pilot))
