"""Screens on a simulated session, at a size and a time."""

from __future__ import annotations

import pickle
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from difflib import unified_diff
from itertools import groupby
from typing import TypeAlias
from xml.etree import ElementTree

import pytest
from pytest_textual_snapshot import node_to_report_path
from textual.pilot import Pilot

from cockpit.launch import submission
from cockpit.model.cluster import ClusterPattern
from cockpit.session.session import Session
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection, Reconnect
from tests.tui import headless, simulated_jobs
from tests.tui.simulated import Simulation, digits

DEADLINE_S = 60.0


class Seen:
    """The app being driven, and what can be read from it."""

    def __init__(self, app: CockpitApp, pilot: Pilot[int], simulation: Simulation) -> None:
        self.app, self.pilot, self.simulation = app, pilot, simulation

    @property
    def text(self) -> str:
        """The screen as text."""
        from cockpit.tui.terminal.screenshot import text_of

        return text_of(self.app)

    @property
    def asked(self) -> list[tuple[str, ...]]:
        """The calls to the backend, without those for Events and leases."""
        return [
            call
            for call in self.simulation.backend.asked
            if call[0] not in ("announce", "hold", "release")
        ]

    @property
    def toasts(self) -> str:
        """Every message on the screen, as text."""
        return "\n".join(f"{note.title}\n{note.message}" for note in self.app._notifications)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for it; a failed assertion shows the screen."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < deadline, f"never came true:\n{self.text}\n{self.toasts}"
            await self.pilot.pause(0.02)

    async def sees(self, *texts: str) -> None:
        def shown() -> bool:
            screen = self.text
            return all(text in screen for text in texts)

        await self.until(shown)

    async def advance(self, to_s: float) -> None:
        self.simulation.advance(to_s)
        self.app.tick()
        await self.pilot.pause()


Open: TypeAlias = Callable[..., AbstractAsyncContextManager[Seen]]


@pytest.fixture(autouse=True)
def headless_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    headless.patch(monkeypatch)


@pytest.fixture(autouse=True)
def jobs_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launch from the list of `tests.tui.simulated_jobs`, not from that of `training`."""
    monkeypatch.setattr(submission, "bundled_job", simulated_jobs.bundled_job)


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def snap_compare(
    snap_compare: Callable[..., bool], request: pytest.FixtureRequest
) -> Callable[..., bool]:
    """As the plugin's, but a mismatch fails with the lines of text that differ.

    The plugin's report is a page with pictures, which the log of a remote run does not contain.
    """

    def compare(*arguments: object, **options: object) -> bool:
        if not snap_compare(*arguments, **options):
            report = node_to_report_path(request.node).read_bytes()
            _, expected, actual, *_ = pickle.loads(report)
            pytest.fail(difference(expected, actual), pytrace=False)
        return True

    return compare


def difference(expected: str, actual: str) -> str:
    """How the text of two SVG screens differs."""
    lines = list(
        unified_diff(lines_of(expected), lines_of(actual), "snapshot", "screen", n=0, lineterm="")
    )
    return "\n".join(lines) or "The screen differs from its snapshot only in its colors."


def lines_of(svg: str) -> list[str]:
    """The lines of text of a screen that Rich has drawn; none of an empty file."""
    if not svg.startswith("<"):
        return []
    texts = [node for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("}text")]
    placed = sorted((float(n.attrib["y"]), float(n.attrib["x"]), n.text or "") for n in texts)
    lines = groupby(placed, key=lambda each: each[0])
    return ["  ".join(text for _, _, text in line).replace("\xa0", " ") for _, line in lines]


@pytest.fixture
def cockpit() -> Open:
    """`async with cockpit(at_s=60) as seen`: the app on the digits run, 60 s after its start."""

    @asynccontextmanager
    async def opened(
        *,
        at_s: float = 60.0,
        size: tuple[int, int] = (80, 24),
        simulation: Simulation | None = None,
        read_only: bool = False,
        protected: Sequence[ClusterPattern] = (),
        actions: bool = True,
        ends: str = "",
        fleet: Session | None = None,
        reconnect: Reconnect | None = None,
        chosen: bool = True,
    ) -> AsyncIterator[Seen]:
        simulated = simulation or digits()
        simulated.advance(at_s)
        connection = Connection(
            simulated.session if chosen else None,
            simulated.actions if actions else None,
            ends_with_screen=ends,
            fleet=fleet,
            reconnect=reconnect,
        )
        app = CockpitApp(
            lambda say: connection,
            read_only=read_only,
            protected=protected,
            cluster="local:demo",
        )
        with simulated.session, fleet or nullcontext():
            async with app.run_test(size=size, notifications=True) as pilot:
                seen = Seen(app, pilot, simulated)
                await seen.until(
                    lambda: app.connection is not None and (bool(app.capabilities) or not chosen)
                )
                app.redraw()
                await pilot.pause()
                yield seen
                _ = seen.text  # renders: a widget that cannot be painted fails its test

    return opened
