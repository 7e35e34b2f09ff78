"""The preflight in the dialog of a launch: its lines, and a second key that launches anyway."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from cockpit.preflight.demand import Demand
from cockpit.preflight.finding import Finding, State
from cockpit.preflight.target import Target
from cockpit.tui.dialogs.launch import Launch
from tests.tui.conftest import Open
from tests.tui.simulated import SimulatedActions

NOT_SHARED = Finding(
    "storage", State.FAILED, "/mnt is not shared: two does not see it.", "Mount it."
)
SLOW = Finding("clocks", State.WARNING, "two is at least 5.0 s ahead of one.")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What the checks find; the test fills it."""
    made: list[Finding] = [Finding("ray", State.OK, "2.60.0 in all pods")]

    async def preflight(
        self: SimulatedActions, target: Target, demand: Demand, *, timeout_s: float
    ) -> Sequence[Finding]:
        assert target.head is not None
        assert timeout_s == 3.0
        return list(made)

    monkeypatch.setattr(SimulatedActions, "demand", lambda self, spec: Demand())
    monkeypatch.setattr(SimulatedActions, "preflight", preflight)
    return made


async def test_failed_check_is_shown_and_the_same_key_launches_anyway(
    cockpit: Open, found: list[Finding]
) -> None:
    found.append(NOT_SHARED)
    async with cockpit(size=(100, 40)) as seen:
        await seen.press("L", "enter", "ctrl+s")
        await seen.sees("failed: storage: /mnt is not shared", "ctrl+s launches anyway")
        assert not seen.simulation.ray.submitted
        await seen.press("ctrl+s")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))


async def test_change_of_a_setting_is_checked_again(cockpit: Open, found: list[Finding]) -> None:
    found.append(NOT_SHARED)
    async with cockpit(size=(100, 40)) as seen:
        await seen.press("L", "enter", "ctrl+s")
        await seen.sees("failed: storage")
        found.remove(NOT_SHARED)
        await seen.press("enter", "3", "enter")
        await seen.until(lambda: "failed: storage" not in seen.text)
        await seen.press("ctrl+s")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))
        assert seen.simulation.ray.commands == ["python -m training.jobs.digits --workers=3"]


async def test_warnings_are_a_message_and_do_not_stop_the_launch(
    cockpit: Open, found: list[Finding]
) -> None:
    found.append(SLOW)
    async with cockpit() as seen:
        await seen.press("L", "enter", "ctrl+s")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))
        assert "warning: clocks: two is at least 5.0 s ahead of one." in seen.toasts


async def test_screen_is_drawn_while_pods_do_not_answer_and_the_key_does_not_wait(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def preflight(self: SimulatedActions, *args: object, **how: object) -> list[Finding]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(SimulatedActions, "demand", lambda self, spec: Demand())
    monkeypatch.setattr(SimulatedActions, "preflight", preflight)
    async with cockpit(size=(100, 40)) as seen:
        await seen.press("L", "enter", "ctrl+s")
        await seen.sees("Checking the pods", "Launch digits")
        await seen.press("j", "slash")
        assert isinstance(seen.app.screen, Launch)
        await seen.press("escape", "ctrl+s")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))


@pytest.mark.parametrize("keys", [("enter", "ctrl+s", "escape"), ("ctrl+s", "down")])
async def test_order_that_is_being_checked_is_not_launched_once_another_may_be_given(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    go = threading.Event()

    async def preflight(self: SimulatedActions, *args: object, **how: object) -> list[Finding]:
        await asyncio.to_thread(go.wait, 60)
        return []

    monkeypatch.setattr(SimulatedActions, "demand", lambda self, spec: Demand())
    monkeypatch.setattr(SimulatedActions, "preflight", preflight)
    async with cockpit(size=(100, 40)) as seen:
        await seen.press("L", *keys[:-1])
        await seen.sees("Checking the pods")
        await seen.press(keys[-1])
        checks = [worker for worker in seen.app.workers if worker.name == "preflight"]
        go.set()
        await seen.until(lambda: all(worker.is_finished for worker in checks))
        assert isinstance(seen.app.screen, Launch)
        assert "Checking the pods" not in seen.text
        assert not seen.simulation.ray.submitted
