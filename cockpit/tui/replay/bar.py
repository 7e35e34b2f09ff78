"""The position of a replay: the time, the speed, and the events."""

from __future__ import annotations

from textual.content import Content

from cockpit.format import duration
from cockpit.recorder.reading.player import Player
from cockpit.recorder.writing.running_summary import Marker
from cockpit.tui.main.frame import Line
from cockpit.tui.terminal.symbols import Symbols, symbols

LETTERS = {"attempt": "A", "drill": "D", "alert": "!", "mark": "m", "end": "E"}
STYLES = {
    "attempt": "$accent bold",
    "drill": "$bad bold",
    "alert": "$warning bold",
    "mark": "$foreground bold",
    "end": "$muted bold",
}
RANKED = ("end", "mark", "attempt", "alert", "drill")
"""Of two that fall on one cell, the later in this list is shown."""


class ReplayBar(Line):
    """One line; a click on the track seeks there."""

    DEFAULT_CSS = """
    ReplayBar { background: $panel; }
    """

    def draw(self, player: Player) -> None:
        """From the state of the player; painted only when that has changed."""
        length_s = player.end_s - player.begin_s
        at_s = player.position_s - player.begin_s
        width = self.size.width
        state, style = _state(player)
        times = "x" if symbols() is Symbols.ASCII else "×"
        left = Content.assemble(Content.styled(f" {state} ", style), " ")
        right = Content.styled(
            f" {duration(at_s)} of {duration(length_s)} · {player.speed:g}{times} ", "$muted"
        )
        room = width - left.cell_length - right.cell_length
        if room < 8:
            self.show(Content.assemble(left, right))
            return
        track = _track(player, room)
        x = left.cell_length
        clicks = [
            (x + cell, x + cell + 1, f"screen.replay_to({cell}, {room})") for cell in range(room)
        ]
        self.show(Content.assemble(left, track, right), clicks)


def _state(player: Player) -> tuple[str, str]:
    if player.seeking:
        return "SEEKING", "reverse $accent"
    if player.at_end:
        return "  END  ", "reverse $muted"
    if player.paused:
        return "PAUSED ", "reverse $warning"
    return "REPLAY ", "reverse $good"


def _track(player: Player, room: int) -> Content:
    plain = symbols() is Symbols.ASCII
    done, ahead, here = ("=", "-", "#") if plain else ("━", "─", "●")
    at = cell_of(player.position_s, player, room)
    marks: dict[int, Marker] = {}
    for marker in player.markers:
        cell = cell_of(marker.at_s, player, room)
        before = marks.get(cell)
        if before is None or RANKED.index(marker.kind) >= RANKED.index(before.kind):
            marks[cell] = marker
    parts: list[Content] = []
    cell = 0
    for stop in (*sorted({at, *marks}), room):
        if stop > cell:
            symbol, style = (done, "$accent") if cell < at else (ahead, "$muted")
            parts.append(Content.styled(symbol * (stop - cell), style))
        if stop == room:
            break
        if stop == at:
            parts.append(Content.styled(here, "$foreground bold"))
        else:
            kind = marks[stop].kind
            parts.append(Content.styled(LETTERS[kind], STYLES[kind]))
        cell = stop + 1
    return Content.assemble(*parts)


def cell_of(at_s: float, player: Player, room: int) -> int:
    """The cell of `room` for a time."""
    length_s = player.end_s - player.begin_s
    if length_s <= 0:
        return 0
    return min(room - 1, max(0, int((at_s - player.begin_s) / length_s * room)))
