"""What is sent to the terminal besides the screen: a notification, a title, the clipboard.

OSC 9 is shown by iTerm2, kitty, WezTerm, Ghostty and others, also over SSH; terminals without it
ignore it (https://iterm2.com/documentation-escape-codes.html). foot, rxvt-unicode and terminals of
VTE show OSC 777, with a title. A terminal gets one of the two, as some show both.
"""

from __future__ import annotations

from base64 import b64encode
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
    return through_tmux(sequence) if environment.get("TMUX") else sequence


def window_title(text: str, environment: Mapping[str, str]) -> str:
    """OSC 2, the title of the window; in tmux that of the pane. Empty where it may be printed."""
    if environment.get("TERM", "") in WITHOUT:
        return ""
    return f"\x1b]2;{one_line(text, LONGEST)}\x07"


def clipboard(text: str, environment: Mapping[str, str]) -> str:
    """OSC 52 around tmux, which by default does not take it from a program; empty without tmux."""
    if not environment.get("TMUX"):
        return ""
    return through_tmux(f"\x1b]52;c;{b64encode(text.encode()).decode()}\x07")


def through_tmux(sequence: str) -> str:
    return f"\x1bPtmux;{sequence.replace(chr(27), chr(27) * 2)}\x1b\\"
