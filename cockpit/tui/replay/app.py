"""The screens on a recording: the very same ones, with a bar below and keys that turn its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen

from cockpit.model.error import NotAllowedError
from cockpit.tui.app import CockpitApp
from cockpit.tui.keys import TITLES, Key
from cockpit.tui.main.frame import DrillLine, KeyBar, StatusLine, Tabs
from cockpit.tui.main.screen import MainScreen
from cockpit.tui.replay.bar import ReplayBar
from cockpit.tui.view_state import ViewState

if TYPE_CHECKING:
    from cockpit.recorder.reading.player import Player

REPLAY_KEYS: tuple[Key, ...] = (
    Key("replay_play", "space,p", "space", "pause", "Pause or continue the recording"),
    Key("replay_back", "comma", ",", "-10 s", "10 seconds back"),
    Key("replay_on", "full_stop", ".", "+10 s", "10 seconds forward"),
    Key("replay_back_far", "less_than_sign", "<", "-1 min", "A minute back"),
    Key("replay_on_far", "greater_than_sign", ">", "+1 min", "A minute forward"),
    Key("replay_marker_before", "left_parenthesis", "(", "before",
        "To the previous attempt, drill, alert or mark"),
    Key("replay_marker_next", "right_parenthesis", ")", "next",
        "To the next attempt, drill, alert or mark"),
    Key("replay_slower", "left_curly_bracket", "{", "slower", "Slower"),
    Key("replay_faster", "right_curly_bracket", "}", "faster", "Faster"),
    Key("replay_begin", "circumflex_accent", "^", "begin", "To its beginning"),
    Key("replay_end", "dollar_sign", "$", "end", "To its end"),
)  # fmt: skip


class ReplayScreen(MainScreen):
    BINDINGS: ClassVar[list[BindingType]] = [
        # Before what a view makes of the same key: here the clock is what one turns most.
        Binding(key.keys, key.id, key.help, id=key.id, priority=True)
        for key in REPLAY_KEYS
    ]

    def compose(self) -> ComposeResult:
        yield Tabs()
        yield StatusLine()
        yield DrillLine()
        yield Container(id="view")
        yield ReplayBar()
        yield KeyBar()

    @property
    def player(self) -> Player | None:
        """None until the recording is open."""
        from cockpit.session.replay import ReplaySession

        session = self.cockpit.session
        return session.player if isinstance(session, ReplaySession) else None

    def redraw(self, state: ViewState, *, also_paused: bool = False) -> None:
        super().redraw(state, also_paused=also_paused)
        self.draw_bar()

    def draw_bar(self) -> None:
        if (player := self.player) is not None:
            for bar in self.query(ReplayBar):  # there is none until the screen is composed
                bar.draw(player)

    def keys_here(self, state: ViewState) -> tuple[Key, ...]:
        """The keys of the replay clock, and the other keys that are not refused in a replay."""
        here = super().keys_here(state)
        return (*REPLAY_KEYS, *(key for key in here if not key.verb and key.id != "pause"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A line that is being typed takes its letters itself."""
        if action.startswith("replay_") and action != "replay_to":
            typing = self.prompt is not None and self.prompt.has_focus_within
            return not typing and self.app.screen is self
        return super().check_action(action, parameters)

    def action_replay_play(self) -> None:
        if (player := self.player) is not None:
            player.play()
            self._turned()

    def action_pause(self) -> None:
        self.action_replay_play()

    def action_replay_back(self) -> None:
        self._move(-10)

    def action_replay_on(self) -> None:
        self._move(10)

    def action_replay_back_far(self) -> None:
        self._move(-60)

    def action_replay_on_far(self) -> None:
        self._move(60)

    def action_replay_marker_before(self) -> None:
        self._to_marker(-1)

    def action_replay_marker_next(self) -> None:
        self._to_marker(1)

    def action_replay_slower(self) -> None:
        self._change_speed(-1)

    def action_replay_faster(self) -> None:
        self._change_speed(1)

    def action_replay_begin(self) -> None:
        if (player := self.player) is not None:
            player.seek(player.begin_s)
            self._turned()

    def action_replay_end(self) -> None:
        if (player := self.player) is not None:
            player.seek(player.end_s)
            self._turned()

    def action_replay_to(self, cell: int, room: int) -> None:
        """A click on the bar."""
        if (player := self.player) is not None:
            share = cell / max(1, room - 1)
            player.seek(player.begin_s + share * (player.end_s - player.begin_s))
            self._turned()

    def action_help(self) -> None:
        from textual.content import Content

        from cockpit.tui.dialogs.help import help_text, key_lines
        from cockpit.tui.dialogs.reading import Reading

        name = self.view_name

        def text(width: int) -> Content:
            parts = [key_lines("Replay", REPLAY_KEYS, width), help_text(name, width)]
            return Content("\n\n").join(parts)

        self.app.push_screen(Reading(f"Keys · {TITLES[name]}", text))

    def _move(self, by_s: float) -> None:
        if (player := self.player) is not None:
            player.move(by_s)
            self._turned()

    def _to_marker(self, step: int) -> None:
        if (player := self.player) is None:
            return
        found = player.to_marker(step)
        text = f"{found.kind}: {found.text}" if found else "No marker that way."
        self.app.notify(text, timeout=3, markup=False)
        self._turned()

    def _change_speed(self, steps: int) -> None:
        if (player := self.player) is not None:
            player.change_speed(steps)
            self._turned()

    def _turned(self) -> None:
        """Answered at once, not with the next tick."""
        self.cockpit.tick()
        self.draw_now()


class ReplayApp(CockpitApp):
    """`connect` opens the recording: see `cockpit.tui.replay.session.connection`."""

    def get_default_screen(self) -> Screen[Any]:
        return ReplayScreen()

    def tick(self) -> None:
        super().tick()
        for screen in self.screen_stack:
            if isinstance(screen, ReplayScreen) and screen.is_mounted:
                screen.draw_bar()

    def mark(self, text: str = "") -> None:
        self.trouble(NotAllowedError("Nothing is marked.", "This is a recording."))

    def _notify_recoveries(self) -> None:
        """They were reported when they happened; the bar has them as marks."""
