"""A notification of the desktop, sent through the terminal.

OSC 9 is shown by iTerm2, kitty, WezTerm, Ghostty and others, also over SSH; terminals without it
ignore it (https://iterm2.com/documentation-escape-codes.html).
"""

from __future__ import annotations

from collections.abc import Mapping

from cockpit.model.text import one_line

LONGEST = 120
WITHOUT = ("linux", "dumb", "unknown")
"""Values of TERM for terminals that may print the sequence."""


def notification(text: str, environment: Mapping[str, str]) -> str:
    """The sequence for the terminal; empty for one that may print it.

    tmux passes it on where `allow-passthrough` is on (tmux(1)).
    """
    if environment.get("TERM", "") in WITHOUT:
        return ""
    sequence = f"\x1b]9;cockpit: {one_line(text, LONGEST)}\x07"
    if environment.get("TMUX"):
        return f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\"
    return sequence
