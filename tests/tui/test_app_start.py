from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from cockpit.config import paths
from cockpit.model.cluster import ClusterPattern
from cockpit.model.error import ExitCode, UnreachableError
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection, Log, Quit
from cockpit.tui.main.screen import MainScreen
from cockpit.tui.theme import load_themes
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import digits


async def test_the_start_reports_its_progress_and_then_shows_the_cluster() -> None:
    simulation, go = digits(), threading.Event()
    simulation.advance(60)

    def connect(say: Log) -> Connection:
        say("head is up")
        say("starting worker 1 of 2")
        go.wait(10)
        return Connection(simulation.session, simulation.actions)

    app = CockpitApp(connect, cluster="local:demo")
    with simulation.session:
        async with app.run_test(size=(80, 24)) as pilot:
            seen = Seen(app, pilot, simulation)
            await seen.sees("Starting local:demo", "✓ head is up", "· starting worker 1 of 2")
            await seen.sees(": command", "q quit")
            assert "K kill" not in seen.text, "there is nothing to kill yet"
            go.set()
            await seen.sees("● ready", "RUNNING", "attempt 1", "K kill")


async def test_a_start_that_fails_reports_why_and_quits_with_its_code() -> None:
    def connect(say: Log) -> Connection:
        say("asking the head")
        raise UnreachableError("No cluster.", "Port 8265 is closed.", "Start one: cockpit demo")

    app = CockpitApp(connect)
    async with app.run_test(size=(80, 24)) as pilot:
        seen = Seen(app, pilot, digits())
        await seen.sees("No cluster.", "Port 8265 is closed.", "Start one: cockpit demo")
        await seen.sees("q quits with exit code 3", "· asking the head")
        await seen.press("q")
        await seen.until(lambda: app.return_code == ExitCode.UNREACHABLE)


async def test_a_start_is_reported_when_the_user_has_left_at_the_same_time() -> None:
    go, reported = threading.Event(), threading.Event()

    def connect(say: Log) -> Connection:
        go.wait(10)
        try:
            say("worker 1 is up")
        except Quit:
            reported.set()
            raise
        raise AssertionError("the app was still running")

    app = CockpitApp(connect)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
        await pilot.pause()
    go.set()
    assert reported.wait(10)


@pytest.mark.parametrize("name", ["cockpit-dark", "cockpit-light", "ansi-16"])
async def test_the_first_frame_has_the_colours_of_the_chosen_theme(name: str) -> None:
    (chosen,), _ = load_themes([name])
    go = threading.Event()

    def connect(say: Log) -> Connection:
        go.wait(10)
        raise Quit

    app = CockpitApp(connect, theme_name=name)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert app.theme == name
        assert app.theme_variables["good"] == chosen.variables["good"]
        assert app.stylesheet._variables["good"] == chosen.variables["good"]
        assert app.has_class("-dark-mode") is chosen.dark
        go.set()


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"TERM": "xterm", "COLORTERM": ""}, "ansi-16"),
        ({"TERM": "xterm-256color", "COLORTERM": ""}, "cockpit-dark"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "cockpit-dark"),
    ],
)
def test_default_theme_is_that_of_the_terminals_colors(
    variables: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, text in variables.items():
        monkeypatch.setenv(variable, text)

    def connect(say: Log) -> Connection:
        raise AssertionError("it is not started")

    assert CockpitApp(connect, theme_name="").theme_name == name
    assert CockpitApp(connect, theme_name="high-contrast").theme_name == "high-contrast"


async def test_a_view_asked_for_while_another_is_being_built_is_the_one_that_is_shown(
    cockpit: Open,
) -> None:
    async with cockpit() as seen:
        screen = seen.app.screen
        assert isinstance(screen, MainScreen)
        await asyncio.gather(screen.action_view("jobs"), screen.action_view("overview"))
        await seen.sees("Cluster")
        assert [name for name, view in screen.views.items() if view.display] == ["overview"]


async def test_protected_cluster_is_marked_with_a_word(cockpit: Open) -> None:
    async with cockpit(protected=[ClusterPattern(cluster="demo")]) as seen:
        await seen.sees("PROTECTED")
    async with cockpit(protected=[ClusterPattern(cluster="other")]) as seen:
        assert "PROTECTED" not in seen.text


async def test_changed_theme_file_is_shown_and_a_wrong_one_reported(
    cockpit: Open, tmp_path: Path
) -> None:
    own = paths.config_dir() / "themes" / "cockpit-dark.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[colors]\nprimary = "#112233"\n')
    async with cockpit() as seen:
        seen.app.reload_theme()
        for color, stamp in (("#445566", 1), ('"', 2)):
            own.write_text(f'[colors]\nprimary = "{color}"\n')
            os.utime(own, (stamp, stamp))
            seen.app.reload_theme()
            assert seen.app.current_theme.primary == "#445566"
        await seen.until(lambda: "cockpit-dark cannot be used" in seen.toasts)
        assert seen.app.theme_variables["primary"] == "#445566"
