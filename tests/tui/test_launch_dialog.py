"""Launching from the screen: a job is found, its settings are changed, and wrong ones stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from textual.widgets import OptionList

from cockpit.launch import submission
from cockpit.model.error import UsageError
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from cockpit.tui.dialogs.launch import Launch
from tests.tui.conftest import Open
from tests.tui.simulated import Simulation, digits
from tests.tui.test_app_snapshots import Compare, shown

TO_THE_WRONG_ONE = ("L", *"pipe", "enter", "enter", *"3.5", "enter", "j", "right")


async def test_a_job_is_found_by_typing_and_launched_as_it_is(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("L")
        await seen.sees("Launch a job", "digits", "char-gpt", "Answers from a checkpoint")
        await seen.press(*"transf")
        await seen.until(lambda: "Answers from" not in seen.text)
        await seen.press("enter")
        await seen.sees("Launch char-gpt", "training workers (ranks)")
        await seen.press("ctrl+s")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))
        assert seen.simulation.ray.commands == ["python -m training.jobs.gpt"]
        await seen.until(lambda: "char-gpt is job char-gpt-" in seen.toasts)


async def test_values_are_typed_chosen_and_switched_and_only_they_are_sent(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("L", "enter")
        await seen.sees("Launch digits", "▶ Speed and memory")
        await seen.press("enter", "4", "enter")  # typed over what was there
        await seen.sees("Launch digits · 1 changed", "* 4")
        await seen.press("j", "j", "enter", "down", "enter")  # gpu: chosen
        await seen.sees("* true", "2 changed")
        await seen.press("j", "space")  # stop_on_nan: switched
        await seen.sees("* false", "3 changed")
        await seen.press("slash", *"prec", "enter", "right", "right")
        await seen.sees("* bf16")
        await seen.press("escape")
        await seen.sees("▶ Speed and memory  3 settings, 1 changed")
        await seen.press("ctrl+s")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))
        settings = "--workers=4 --gpu=true --stop-on-nan=false --precision=bf16"
        assert seen.simulation.ray.commands == [f"python -m training.jobs.digits {settings}"]


async def test_a_number_is_changed_by_typing_it(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("L", "enter", *"16", "enter", "j", "j", "2", "ctrl+s")  # gpu is no number
        await seen.until(lambda: bool(seen.simulation.ray.submitted))
        assert seen.simulation.ray.commands == ["python -m training.jobs.digits --workers=16"]


async def test_a_wrong_value_is_marked_and_launches_nothing(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("L", "enter", "enter", *"many")
        await seen.sees("! many", "many is not a whole number")
        await seen.press("enter", "G", "ctrl+s")
        await seen.sees("many is not a whole number")
        assert isinstance(seen.app.screen, Launch)
        assert seen.app.screen.settings.line is not None
        assert seen.app.screen.settings.line.setting.name == "workers"
        await seen.press("backspace")
        await seen.until(lambda: "! many" not in seen.text)
        await seen.press("ctrl+s")
        await seen.until(lambda: seen.simulation.ray.commands == ["python -m training.jobs.digits"])


async def test_escape_leaves_the_value_then_the_settings_then_the_dialog(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("L", "enter", "enter", "7", "escape")
        await seen.until(lambda: "changed" not in seen.text.splitlines()[0])
        await seen.press("j", "enter", "9", "enter", "escape")
        await seen.sees("Launch a job")
        await seen.press("down", "enter")
        await seen.sees("Launch char-gpt ")
        await seen.press("escape", "up", "enter")
        await seen.sees("Launch digits · 1 changed", "* 9")
        await seen.press("escape", "escape")
        await seen.until(lambda: not isinstance(seen.app.screen, Launch))
        assert not seen.simulation.ray.submitted


async def test_an_order_that_is_refused_comes_back_as_it_was_typed(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(dashboard: object, spec: object, log: object) -> None:
        raise UsageError("The cluster has no such disk.", "It has /mnt.")

    launch = submission.launch
    monkeypatch.setattr(submission, "launch", refuse)
    async with cockpit(size=(120, 40)) as seen:
        await seen.press("L", "enter", "enter", "3", "ctrl+s")
        await seen.sees("The cluster has no such disk.", "It has /mnt.", "1 changed", "* 3")
        monkeypatch.setattr(submission, "launch", launch)
        await seen.press("j", "enter", "7", "ctrl+s")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))
        [command] = seen.simulation.ray.commands
        assert command == "python -m training.jobs.digits --workers=3 --epochs=7"


async def test_the_mouse_does_all_of_it(cockpit: Open) -> None:
    async with cockpit(size=(100, 40)) as seen:
        await seen.press("L")
        await seen.sees("char-gpt")

        async def click(selector: str, row: int) -> None:
            await seen.pilot.click(selector, offset=(5, row))
            await seen.pilot.pause()

        await click("#jobs", 1)
        await seen.sees("Launch char-gpt", "▶ Data")
        await click("#settings", 6)
        await seen.sees("▼ Data", "batch_size")
        await click("#settings", 4)
        await seen.sees("* false")
        await click("#settings", 3)
        await seen.until(lambda: seen.app.screen.query_one("#words", OptionList).display)
        await click("#words", 2)
        await seen.sees("gpu", "2 changed")
        await seen.pilot.click("#yes")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))
        [command] = seen.simulation.ray.commands
        assert command == "python -m training.jobs.gpt --gpu=false --stop-on-nan=false"


async def test_a_command_goes_to_the_settings_of_the_job_that_it_names(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("colon", *"launch serve", "enter")
        await seen.sees("Launch serve", "port", "8000")
        await seen.press("escape", "escape", "colon", *"launch char", "enter")
        await seen.sees("Launch a job", "find  char", "char-gpt")
        await seen.until(lambda: "serve" not in seen.text)


@pytest.fixture
def started() -> Iterator[Callable[[], CockpitApp]]:
    """An app on a simulation; its session is closed afterwards."""
    simulations: list[Simulation] = []

    def start() -> CockpitApp:
        simulation = digits()
        simulations.append(simulation)
        simulation.advance(60)
        simulation.session.start()
        return CockpitApp(lambda say: Connection(simulation.session, simulation.actions))

    yield start
    for simulation in simulations:
        simulation.session.close()


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_the_settings_of_a_job_to_be_launched(
    started: Callable[[], CockpitApp], snap_compare: Compare, size: tuple[int, int]
) -> None:
    assert snap_compare(
        started(),
        terminal_size=size,
        run_before=lambda pilot: shown(pilot, "jobs", *TO_THE_WRONG_ONE),
    )
