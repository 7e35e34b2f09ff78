"""Snapshots of every view. After an intended change: `pytest tests/tui --snapshot-update`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from textual.pilot import Pilot

from cockpit.session.session import Session
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from cockpit.tui.main.screen import MainScreen
from tests.tui.simulated import START_S, Simulation, digits, wide
from tests.tui.simulated_kubernetes import fleet, kube

Compare = Callable[..., bool]

SIZES = [(80, 24), (200, 50)]


AT_S = 60.0
"""When pictures of Kubernetes are taken."""


@pytest.fixture
def on_kubernetes() -> Iterator[Callable[[bool], CockpitApp]]:
    """An app on the simulated RayCluster, or without one, with a fleet."""
    sessions: list[Session] = []

    def start(chosen: bool) -> CockpitApp:
        simulation, others = kube(), fleet(START_S + AT_S)
        simulation.advance(AT_S)
        for session in (simulation.session, others):
            session.start()
            sessions.append(session)
        looked_at = simulation.session if chosen else None
        connection = Connection(looked_at, simulation.actions, fleet=others)
        return CockpitApp(lambda say: connection)

    yield start
    for session in sessions:
        session.close()


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


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "200x50"])
@pytest.mark.parametrize("view", ["overview", "pods", "jobs", "nodes", "fleet"])
def test_view_on_kubernetes(
    on_kubernetes: Callable[[bool], CockpitApp],
    snap_compare: Compare,
    view: str,
    size: tuple[int, int],
) -> None:
    keys = ("j", "j") if view == "pods" else ()
    app = on_kubernetes(True)
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: shown(pilot, view, *keys))


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "200x50"])
def test_the_fleet_to_choose_from(
    on_kubernetes: Callable[[bool], CockpitApp], snap_compare: Compare, size: tuple[int, int]
) -> None:
    app = on_kubernetes(False)
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: shown(pilot, "fleet"))


@pytest.mark.parametrize(
    ("view", "keys"),
    [("overview", ("U",)), ("overview", ("plus",)), ("nodes", ("j", "C")), ("jobs", ("L",))],
    ids=["suspend", "scale", "cordon", "launch"],
)
def test_the_question_before_a_change_on_kubernetes(
    on_kubernetes: Callable[[bool], CockpitApp],
    snap_compare: Compare,
    view: str,
    keys: tuple[str, ...],
) -> None:
    app = on_kubernetes(True)
    assert snap_compare(
        app, terminal_size=(80, 24), run_before=lambda pilot: shown(pilot, view, *keys)
    )


async def shown(pilot: Pilot[int], view: str, *keys: str) -> None:
    """Wait for the connection and show that view, then press the keys."""
    app = pilot.app
    assert isinstance(app, CockpitApp)
    async with asyncio.timeout(20):
        while app.connection is None or (app.session is not None and not app.capabilities):
            await pilot.pause(0.02)
        if app.store.ref is not None and app.store.ref.backend == "kuberay":
            while not app.route:
                await pilot.pause(0.02)
    screen = app.screen
    assert isinstance(screen, MainScreen)
    await screen.action_view(view)
    for key in keys:
        await pilot.press(key)
    app.redraw()
