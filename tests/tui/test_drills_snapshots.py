"""Snapshots of view 6: the catalog, an active drill, its page, and the form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from cockpit.tui.dialogs.confirm import Confirm
from cockpit.tui.dialogs.drill import DrillDialog
from cockpit.tui.terminal.symbols import Symbols, use_symbols
from cockpit.tui.theme import DEFAULT_THEME
from tests.tui.drilled import drilled
from tests.tui.simulated import Simulation, digits
from tests.tui.test_app_snapshots import shown

Compare = Callable[..., bool]
Start = Callable[..., CockpitApp]


@pytest.fixture
def started() -> Iterator[Start]:
    """An app on a simulation at a time; its session is closed afterwards."""
    simulations: list[Simulation] = []

    def start(simulation: Simulation, at_s: float, theme: str = DEFAULT_THEME) -> CockpitApp:
        simulations.append(simulation)
        simulation.advance(at_s)
        simulation.session.start()
        connection = Connection(simulation.session, simulation.actions)
        return CockpitApp(lambda say: connection, cluster="local:demo", theme_name=theme)

    yield start
    use_symbols(None)
    for simulation in simulations:
        simulation.session.close()


def test_drills_catalogue(started: Start, snap_compare: Compare) -> None:
    app = started(drilled(), 60)
    assert snap_compare(
        app, terminal_size=(80, 24), run_before=lambda pilot: shown(pilot, "drills", "j", "j")
    )


@pytest.mark.parametrize(
    ("size", "theme", "symbols"),
    [
        ((80, 24), DEFAULT_THEME, Symbols.BRAILLE),
        ((120, 40), "cockpit-light", Symbols.BRAILLE),
        ((200, 50), DEFAULT_THEME, Symbols.BRAILLE),
        ((80, 24), "ansi-16", Symbols.ASCII),
    ],
    ids=["80x24", "120x40-light", "200x50", "80x24-ascii-16"],
)
def test_drills_live(
    started: Start, snap_compare: Compare, size: tuple[int, int], theme: str, symbols: Symbols
) -> None:
    use_symbols(symbols)
    app = started(drilled(), 95, theme)
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: shown(pilot, "drills"))


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_drills_over(started: Start, snap_compare: Compare, size: tuple[int, int]) -> None:
    app = started(drilled(going=False), 130)
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: shown(pilot, "drills"))


def test_drills_page(started: Start, snap_compare: Compare) -> None:
    app = started(drilled(going=False), 130)
    assert snap_compare(
        app, terminal_size=(120, 60), run_before=lambda pilot: shown(pilot, "drills", "o", "enter")
    )


def test_drills_form_for_the_rank_that_is_selected(started: Start, snap_compare: Compare) -> None:
    app = started(digits(kill_s=None), 60)
    assert snap_compare(
        app, terminal_size=(80, 24), run_before=lambda pilot: form(pilot, "ranks", "j", "D")
    )


def test_drills_question_with_the_dry_run(started: Start, snap_compare: Compare) -> None:
    app = started(digits(kill_s=None), 60)
    line = "drill pod-delete rank:1 --seed 7 --within 45"
    assert snap_compare(
        app,
        terminal_size=(80, 24),
        run_before=lambda pilot: asked(pilot, line),
    )


async def form(pilot: Pilot[int], view: str, *keys: str) -> None:
    await shown(pilot, view, *keys)
    await opened(pilot, DrillDialog)


async def asked(pilot: Pilot[int], line: str) -> None:
    """Typed, and its dry run is shown: it is conducted on another thread."""
    await shown(pilot, "drills", "colon", *line, "enter")
    await opened(pilot, Confirm)


async def opened(pilot: Pilot[int], kind: type[Screen[Any]]) -> None:
    """Keys only start it: a worker pushes the dialog, which has the focus when it is complete."""
    async with asyncio.timeout(20):
        while not isinstance(pilot.app.screen, kind) or pilot.app.screen.focused is None:
            await pilot.pause(0.02)
    await pilot.wait_for_scheduled_animations()  # it scrolls to the field that has the keys
    await pilot.pause()


def test_drills_line_in_another_view(started: Start, snap_compare: Compare) -> None:
    app = started(drilled(), 95)
    assert snap_compare(
        app, terminal_size=(80, 24), run_before=lambda pilot: shown(pilot, "overview")
    )
