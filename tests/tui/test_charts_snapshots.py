"""Pictures of the view of charts: zoomed, pointed at, smoothed, by step, of many ranks."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.event import AlertCleared, AlertRaised, RankSampled
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from cockpit.tui.main.screen import MainScreen
from cockpit.tui.terminal.symbols import Symbols, use_symbols
from cockpit.tui.theme import DEFAULT_THEME
from tests.tui.simulated import RUN, START_S, Simulation, digits, wide

Compare = Callable[..., bool]
Start = Callable[..., CockpitApp]


@pytest.fixture
def started() -> Iterator[Start]:
    """Makes an app on a simulation; as a file's snapshots do, in a zone that is always the same."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    use_symbols(Symbols.BRAILLE)
    simulations: list[Simulation] = []

    def start(simulation: Simulation, at_s: float, theme: str = DEFAULT_THEME) -> CockpitApp:
        simulation.advance(at_s)
        simulations.append(simulation)
        simulation.session.start()
        connection = Connection(simulation.session, simulation.actions)
        return CockpitApp(lambda say: connection, cluster="local:demo", theme_name=theme)

    yield start
    for simulation in simulations:
        simulation.session.close()
    use_symbols(None)
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def troubled() -> Simulation:
    """The digits run with a NaN, an infinity and an alert."""
    simulation = digits()
    bad = {45: math.nan, 46: math.nan, 60: math.inf}
    simulation._script = [
        replace(
            event,
            samples=tuple(
                replace(sample, loss=bad.get(round(event.at_s - START_S), sample.loss))
                for sample in event.samples
            ),
        )
        if isinstance(event, RankSampled)
        else event
        for event in simulation._script
    ]
    finding = Finding("loss-nan", f"run {RUN}", Severity.CRITICAL, "The loss is NaN", run_id=RUN)
    alert = Alert("loss-nan/run", finding, START_S + 45)
    simulation._script += [
        AlertRaised(at_s=START_S + 45, source="insight", alert=alert),
        AlertCleared(at_s=START_S + 52, source="insight", alert_id=alert.id),
    ]
    simulation._script.sort(key=lambda event: event.at_s)
    return simulation


def shown(*keys: str) -> Callable[[Pilot[int]], object]:
    async def press(pilot: Pilot[int]) -> None:
        app = pilot.app
        assert isinstance(app, CockpitApp)
        async with asyncio.timeout(30):
            while app.connection is None or not app.capabilities:
                await pilot.pause(0.02)
        screen = app.screen
        assert isinstance(screen, MainScreen)
        await screen.action_view("charts")
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        app.redraw()
        app.clear_notifications()
        await pilot.pause()

    return press


def test_the_cursor_at_a_mark(started: Start, snap_compare: Compare) -> None:
    app = started(troubled(), 130)
    keys = ("left", *("shift+left",) * 3, *("left",) * 6)
    assert snap_compare(app, terminal_size=(80, 24), run_before=shown(*keys))


def test_six_charts_smoothed_with_a_cursor(started: Start, snap_compare: Compare) -> None:
    app = started(troubled(), 200)
    keys = ("s", "s", "left", "shift+left")
    assert snap_compare(app, terminal_size=(200, 50), run_before=shown(*keys))


def test_zoomed_logarithmic_by_step(started: Start, snap_compare: Compare) -> None:
    app = started(digits(), 200)
    keys = ("x", "x", "o", "plus", "left_square_bracket")
    assert snap_compare(app, terminal_size=(120, 36), run_before=shown(*keys))


def test_a_band_of_many_ranks(started: Start, snap_compare: Compare) -> None:
    app = started(wide(40, 60), 60)
    assert snap_compare(app, terminal_size=(120, 36), run_before=shown())


def test_one_curve_a_rank_of_many(started: Start, snap_compare: Compare) -> None:
    app = started(wide(40, 60), 60)
    assert snap_compare(app, terminal_size=(200, 50), run_before=shown("a"))


@pytest.mark.parametrize("symbols", [Symbols.BLOCK, Symbols.ASCII])
def test_without_braille(started: Start, snap_compare: Compare, symbols: Symbols) -> None:
    app = started(wide(40, 60), 60)
    use_symbols(symbols)
    assert snap_compare(app, terminal_size=(80, 24), run_before=shown("left", "shift+left"))


def test_in_sixteen_colours(started: Start, snap_compare: Compare) -> None:
    app = started(troubled(), 130, theme="ansi-16")
    assert snap_compare(app, terminal_size=(80, 24), run_before=shown("s", "left", "shift+left"))
