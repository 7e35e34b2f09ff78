"""A notification of the desktop, sent through the terminal.

OSC 9 is shown by iTerm2, kitty, WezTerm, Ghostty and others, also over SSH; terminals without it
ignore it (https://iterm2.com/documentation-escape-codes.html). foot, rxvt-unicode and terminals of
VTE show OSC 777, with a title. A terminal gets one of the two, as some show both.
"""

from __future__ import annotations

from collections.abc import Mapping

from cockpit.model.text import one_line

LONGEST = 120
WITHOUT = ("linux", "dumb", "unknown")
"""Values of TERM for terminals that may print the sequence."""
WITH_TITLE = ("foot", "rxvt-unicode")
"""How TERM begins for terminals with OSC 777."""


def notification(text: str, environment: Mapping[str, str]) -> str:
    """The sequence for the terminal; empty for one that may print it.

    tmux passes it on where `allow-passthrough` is on (tmux(1)).
    """
    term, message = environment.get("TERM", ""), one_line(text, LONGEST)
    if term in WITHOUT:
        return ""
    sequence = f"\x1b]9;cockpit: {message}\x07"
    if term.startswith(WITH_TITLE) or environment.get("VTE_VERSION"):
        sequence = f"\x1b]777;notify;cockpit;{message}\x07"
    if environment.get("TMUX"):
        return f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\"
    return sequence
