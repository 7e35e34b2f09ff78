"""Pictures of every view. After a change that is meant: `pytest tests/tui --snapshot-update`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from textual.pilot import Pilot

from cockpit.tui.actions import Connection
from cockpit.tui.app import CockpitApp
from cockpit.tui.screens.main import MainScreen
from tests.tui.simulated import Simulation, digits, wide

Compare = Callable[..., bool]

SIZES = [(80, 24), (200, 50)]


@pytest.fixture
def started() -> Iterator[Callable[[Simulation, float], CockpitApp]]:
    """An app on a simulation at a time; its session is closed afterwards."""
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


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "200x50"])
@pytest.mark.parametrize("view", ["overview", "ranks", "charts", "pods", "jobs"])
def test_view_after_a_recovery(
    started: Callable[[Simulation, float], CockpitApp],
    snap_compare: Compare,
    view: str,
    size: tuple[int, int],
) -> None:
    app = started(digits(), 110)
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: shown(pilot, view))


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "200x50"])
def test_overview_during_a_recovery(
    started: Callable[[Simulation, float], CockpitApp],
    snap_compare: Compare,
    size: tuple[int, int],
) -> None:
    app = started(digits(), 90)
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: shown(pilot, "overview"))


def test_a_thousand_ranks_with_gpus(
    started: Callable[[Simulation, float], CockpitApp], snap_compare: Compare
) -> None:
    app = started(wide(1000, until_s=30), 30)
    assert snap_compare(
        app, terminal_size=(200, 50), run_before=lambda pilot: shown(pilot, "ranks")
    )


def test_the_question_before_a_kill(
    started: Callable[[Simulation, float], CockpitApp], snap_compare: Compare
) -> None:
    app = started(digits(kill_s=None), 60)
    assert snap_compare(
        app,
        terminal_size=(80, 24),
        run_before=lambda pilot: shown(pilot, "ranks", "j", "K"),
    )


async def shown(pilot: Pilot[int], view: str, *keys: str) -> None:
    """Wait for the connection and show that view, then press the keys."""
    app = pilot.app
    assert isinstance(app, CockpitApp)
    async with asyncio.timeout(20):
        while not app.capabilities:
            await pilot.pause(0.02)
    screen = app.screen
    assert isinstance(screen, MainScreen)
    await screen.action_view(view)
    for key in keys:
        await pilot.press(key)
    app.redraw()
