"""Text from pods, logs and objects, made safe for a terminal."""

from __future__ import annotations

import re

# ECMA-48: CSI sequences, the string sequences (OSC, DCS, SOS, PM, APC) up to their terminator,
# other two- and three-character escapes; then whatever C0, DEL and C1 controls are left.
_SEQUENCES = re.compile(
    r"""
    (?: \x1b\[ | \x9b ) [0-?]* [ -/]* [@-~]
  | (?: \x1b[\]PX^_] | [\x9d\x90\x98\x9e\x9f] ) .*? (?: \x07 | \x1b\\ | \x9c | $ )
  | \x1b [ -/]* [0-~]?
    """,
    re.VERBOSE,
)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Without terminal control sequences and control characters; tabs become spaces.

    Works on one line: give it lines, not whole files. A carriage return drops what a progress bar
    has overwritten. Bidirectional overrides go too, since they reorder what is shown.
    """
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part), "")
    if "\x1b" in text or not text.isprintable():
        text = _CONTROLS.sub("", _SEQUENCES.sub("", text).expandtabs(8))
    return text


def one_line(text: str, limit: int = 200) -> str:
    """The text as one clean line of at most `limit` characters, with an ellipsis when cut."""
    line = " ".join(clean(part) for part in text.split("\n")).strip()
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def as_sentence(words: str) -> str:
    """A reason that was written to follow a colon, as a sentence of its own."""
    return f"{words[:1].upper()}{words[1:]}."
