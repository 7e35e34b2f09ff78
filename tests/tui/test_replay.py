"""A recording on the screens: the same views, on a clock that keys turn."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from textual.pilot import Pilot

from cockpit.recorder.reading.player import Player
from cockpit.recorder.reading.recording import Recording
from cockpit.tui.replay.app import REPLAY_KEYS, ReplayApp, ReplayScreen
from cockpit.tui.replay.bar import ReplayBar
from cockpit.tui.replay.session import connection
from cockpit.tui.terminal.screenshot import text_of
from cockpit.tui.terminal.symbols import Symbols, use_symbols
from cockpit.tui.theme import Palette
from tests.recorder.test_recorder import record, script
from tests.tui.simulated import RUN, START_S
from tests.tui.test_contrast import texts
from tests.tui.test_hang_page import dumped

Compare = Callable[..., bool]


@dataclass(slots=True)
class Wall:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(slots=True)
class Replayed:
    app: ReplayApp
    player: Player
    wall: Wall
    pilot: Pilot[int]

    @property
    def text(self) -> str:
        return text_of(self.app)

    @property
    def toasts(self) -> str:
        return "\n".join(f"{note.title} {note.message}" for note in self.app._notifications)

    @property
    def at_s(self) -> float:
        return self.player.position_s - START_S

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not true():
                await self.pilot.pause(0.02)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("replay") / "digits.cockpit"
    record(path, script(200))
    return path


def app_on(path: Path, wall: Wall, at_s: float) -> tuple[ReplayApp, Player]:
    player = Player(Recording.open(path), speed=10, paused=True, wall=wall)
    player.seek(START_S + at_s)
    player.settle()
    made = connection(player)
    return ReplayApp(lambda log: made), player


@asynccontextmanager
async def replayed(
    path: Path, at_s: float = 60.0, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[Replayed]:
    wall = Wall()
    app, player = app_on(path, wall, at_s)
    async with app.run_test(size=size) as pilot:
        found = Replayed(app, player, wall, pilot)
        await found.until(lambda: app.connection is not None and bool(app.capabilities))
        yield found
    assert app.connection is not None
    app.connection.close()


async def test_the_screen_shows_the_run_as_it_was(path: Path) -> None:
    async with replayed(path, 60) as seen:
        assert "local:demo" in seen.text
        assert "RUNNING" in seen.text
        assert "PAUSED" in seen.text
        assert "1 m 00 s of 3 m 20 s · 10×" in seen.text


async def test_hang_is_explained_as_it_was(tmp_path: Path) -> None:
    until_s = START_S + 50
    events = [event for event in script(200) if event.at_s <= until_s]
    record(tmp_path / "hung.cockpit", [*events, dumped(RUN, 1)])
    async with replayed(tmp_path / "hung.cockpit", 60) as seen:
        await seen.press(*":hang", "enter")
        await seen.until(lambda: "Rank 1 never called all_reduce #3 of group" in seen.text)
        assert "attempt 1 started with 2 ranks" in seen.text


async def test_space_continues_and_holds(path: Path) -> None:
    async with replayed(path, 60) as seen:
        await seen.press("space")
        assert "REPLAY" in seen.text
        [state] = [style for text, style in texts(seen.app) if text == "REPLAY"]
        assert state.reverse
        assert state.color == Palette.of(seen.app).style("good").color
        seen.wall.now_s += 2.0
        await seen.until(lambda: seen.at_s == 80)
        await seen.press("p")
        assert seen.player.paused
        seen.wall.now_s += 2.0
        seen.app.tick()
        assert seen.at_s == 80


async def test_keys_go_back_and_forward(path: Path) -> None:
    async with replayed(path, 100) as seen:
        for key, at_s in (
            ("comma", 90),
            ("full_stop", 100),
            ("less_than_sign", 40),
            ("greater_than_sign", 100),
            ("circumflex_accent", 0),
            ("dollar_sign", 199.5),
        ):
            await seen.press(key)
            await seen.until(lambda at_s=at_s: seen.at_s == at_s)  # type: ignore[misc]


async def test_going_back_shows_what_was_then(path: Path) -> None:
    async with replayed(path, 90) as seen:
        assert "RESCHEDULING" in seen.text
        await seen.press("less_than_sign")
        await seen.until(
            lambda: "attempt 1 RUNNING" in seen.text or "RESCHEDULING" not in seen.text
        )
        assert "RESCHEDULING" not in seen.text
        assert not seen.app.store.drills


async def test_keys_jump_to_what_happened(path: Path) -> None:
    async with replayed(path, 30) as seen:
        await seen.press("right_parenthesis")
        await seen.until(lambda: seen.at_s == 80)
        assert len(seen.app.store.drills) == 1
        await seen.press("right_parenthesis")
        await seen.until(lambda: seen.at_s == 94)
        await seen.press("left_parenthesis", "left_parenthesis")
        await seen.until(lambda: seen.at_s == 16)


async def test_keys_change_the_speed(path: Path) -> None:
    async with replayed(path) as seen:
        await seen.press("right_curly_bracket")
        assert "30×" in seen.text
        await seen.press("left_curly_bracket", "left_curly_bracket")
        assert "5×" in seen.text


async def test_a_click_on_the_bar_goes_there(path: Path) -> None:
    async with replayed(path, 0) as seen:
        bar = seen.app.screen.query_one(ReplayBar)
        start, _, action = bar._clicks[len(bar._clicks) // 2]
        assert action.startswith("screen.replay_to(")
        await seen.pilot.click(ReplayBar, offset=(start, 0))
        await seen.until(lambda: 90 < seen.at_s < 110)


@pytest.mark.parametrize("key", ["K", "S", "L", "plus"])
async def test_nothing_can_be_changed(path: Path, key: str) -> None:
    async with replayed(path, 60) as seen:
        await seen.press(key)
        await seen.until(lambda: "his is a recording" in seen.toasts)
        assert len(seen.app.screen_stack) == 1


async def test_a_mark_is_not_added(path: Path) -> None:
    async with replayed(path, 60) as seen:
        await seen.press("m")
        assert "This is a recording" in seen.toasts
        assert not seen.app.store.marks


@pytest.mark.parametrize("number", "12345")
async def test_every_view_is_there(path: Path, number: str) -> None:
    async with replayed(path, 60, (80, 24)) as seen:
        await seen.press(number)
        assert "fault in cockpit" not in seen.text
        assert "of 3 m 20 s" in seen.text


async def test_the_log_that_was_recorded_is_shown(path: Path) -> None:
    async with replayed(path, 60) as seen:
        await seen.press("5", "l")
        await seen.until(lambda: "INFO train: epoch" in seen.text)


async def test_typed_text_triggers_no_key_in_replay(path: Path) -> None:
    async with replayed(path, 60) as seen:
        await seen.press("colon", "m", "a", "r", "k", "space", "full_stop", "comma")
        assert seen.at_s == 60
        assert seen.player.paused
        assert "mark .," in seen.text


async def test_the_keys_are_explained(path: Path) -> None:
    async with replayed(path, 60, (120, 60)) as seen:
        await seen.press("question_mark")
        for key in REPLAY_KEYS:
            assert key.help in seen.text


async def test_the_bar_is_drawn_in_ascii_too(path: Path) -> None:
    use_symbols(Symbols.ASCII)
    try:
        async with replayed(path, 100, (80, 24)) as seen:
            bar = seen.text.splitlines()[-2]
    finally:
        use_symbols(None)
    assert bar.isascii()
    assert re.search(r"PAUSED +=+A=+D=+A=*#-+ ", bar)


def test_no_key_of_the_replay_takes_one_of_a_view() -> None:
    from cockpit.tui.keys import KEYS

    ours = {name for key in REPLAY_KEYS for name in key.keys.split(",")} - {"p"}
    theirs = {name for key in KEYS for name in key.keys.split(",")}
    assert not ours & theirs


@pytest.fixture
def shown(path: Path) -> Iterator[Callable[[float], ReplayApp]]:
    apps: list[ReplayApp] = []

    def make(at_s: float) -> ReplayApp:
        app, _ = app_on(path, Wall(), at_s)
        apps.append(app)
        return app

    yield make
    for app in apps:
        if app.connection is not None:
            app.connection.close()


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_picture_of_a_replay(
    shown: Callable[[float], ReplayApp], snap_compare: Compare, size: tuple[int, int]
) -> None:
    async def settled(pilot: Pilot[int]) -> None:
        async with asyncio.timeout(10):
            while not getattr(pilot.app, "capabilities", None):
                await pilot.pause(0.02)
        assert isinstance(pilot.app.screen, ReplayScreen)
        await pilot.pause()

    assert snap_compare(shown(110), terminal_size=size, run_before=settled)
