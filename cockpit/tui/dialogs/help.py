"""The keys of a view, and the commands, as one page."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from textual.content import Content

from cockpit.tui.commands.commands import COMMANDS
from cockpit.tui.keys import MOVING, TITLES, VIEWS, Key, keys_of
from cockpit.tui.terminal.cells import fit, width_of

KEY_CELLS, COMMAND_CELLS = 15, 26
MIN_TEXT_CELLS = 12
"""Cells; on narrower terminals, the text is not aligned after the keys."""

HERE: dict[str, dict[str, str]] = {
    "ranks": {"open": "Open the page of the rank"},
    "jobs": {"open": "Show the log of the job"},
    "fleet": {"open": "Open the cluster"},
    "runs": {"open": "Show the details of the run"},
    "drills": {
        "open": "Open the form of a fault, the steps of a game day, or an earlier drill",
        "drill": "The same; on an earlier drill, the form of its fault",
    },
}
"""By view and key: a shorter description for views where the general one is too wide."""
NOTES: dict[str, tuple[tuple[str, str], ...]] = {
    "jobs": (
        ("e", "In a log: the next error; in all logs of a run, the first one"),
        ("n N", "In a log: the next and the previous match of the filter"),
    ),
    "drills": (
        ("esc", "Close the panel of a drill that has ended"),
        ("Preview", "In a form: the dry run. It shows the targets, and asks"),
        ("NEW STEP", "Time from the fault to the first new step"),
        ("MEDIAN", "Median of NEW STEP in earlier drills of this kind"),
    ),
}
"""By view: lines without a key, or terms on the screen."""


def help_text(view: str, width: int) -> Content:
    """In lines of at most `width` cells."""
    own = [key for key in keys_of(view) if not key.everywhere]
    text = HERE.get(view, {})
    here = [(key.shown, text.get(key.id, key.help)) for key in own]
    rest = [key for key in keys_of(view) if key.everywhere]
    used = [command for command in COMMANDS if command.name not in VIEWS]
    parts = [
        _section(TITLES[view], [*here, *NOTES.get(view, ())], KEY_CELLS, width),
        _section("Everywhere", [(key.shown, key.help) for key in rest], KEY_CELLS, width),
        _section("Moving", MOVING, KEY_CELLS, width),
        _section("Commands", [(f":{c.usage}", c.help) for c in used], COMMAND_CELLS, width),
    ]
    return Content("\n\n").join(parts)


def key_lines(title: str, keys: Sequence[Key], width: int) -> Content:
    """Some keys under a title."""
    return _section(title, [(key.shown, key.help) for key in keys], KEY_CELLS, width)


def _section(title: str, rows: Sequence[tuple[str, str]], cells: int, width: int) -> Content:
    """Continuation lines are indented to the text of the first one."""
    lines = [Content.styled(title, "bold $accent")]
    for left, right in rows:
        head = fit(f"  {left}", max(2 + cells, 3 + width_of(left)))
        room = max(MIN_TEXT_CELLS, width - width_of(head))
        for number, message in enumerate(wrap(right, room)):
            text = head if number == 0 else " " * width_of(head)
            lines.append(Content.assemble(Content.styled(text, "bold"), message))
    return Content("\n").join(lines)
