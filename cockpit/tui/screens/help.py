"""The keys of a view, and the commands, as one page."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from cockpit.tui.commands import COMMANDS
from cockpit.tui.keys import MOVING, TITLES, VIEWS, Key, keys_of

KEY_CELLS, COMMAND_CELLS = 15, 23


HERE: dict[str, dict[str, str]] = {
    "drills": {
        "open": "The form of a fault, the steps of a game day, the report of an earlier drill",
        "drill": "The same form or steps; on an earlier drill, the form of its fault",
    },
}
"""By view and key: what it does there, where the words for all views are too wide."""
NOTES: dict[str, tuple[tuple[str, str], ...]] = {
    "drills": (
        ("esc", "Close the panel of a drill that is over"),
        ("Look first", "In a form: the dry run. It shows whom it would hit, and asks"),
        ("MEDIAN TO STEP", "Fault to first new step, of the drills of its kind before"),
    ),
}
"""By view: what is no key of the table, or a word on the screen."""


def help_text(view: str) -> Content:
    own = [key for key in keys_of(view) if not key.everywhere]
    words = HERE.get(view, {})
    here = [(key.shown, words.get(key.id, key.help)) for key in own]
    rest = [key for key in keys_of(view) if key.everywhere]
    used = [command for command in COMMANDS if command.name not in VIEWS]
    parts = [
        _section(TITLES[view], [*here, *NOTES.get(view, ())], KEY_CELLS),
        _section("Everywhere", [(key.shown, key.help) for key in rest], KEY_CELLS),
        _section("Moving", MOVING, KEY_CELLS),
        _section("Commands", [(f":{c.usage}", c.help) for c in used], COMMAND_CELLS),
    ]
    return Content("\n\n").join(parts)


def key_lines(title: str, keys: Sequence[Key]) -> Content:
    """Some keys under a title."""
    return _section(title, [(key.shown, key.help) for key in keys], KEY_CELLS)


def _section(title: str, rows: Sequence[tuple[str, str]], cells: int) -> Content:
    lines = [Content.styled(title, "bold $accent")]
    for left, right in rows:
        lines.append(Content.assemble(Content.styled(f"  {left:<{cells}}", "bold"), right))
    return Content("\n").join(lines)
