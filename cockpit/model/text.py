"""Text from pods, logs and objects, made safe for a terminal."""

from __future__ import annotations

import re

# ECMA-48: CSI sequences, the string sequences (OSC, DCS, SOS, PM, APC) up to their terminator,
# other two- and three-character escapes; then all remaining C0, DEL and C1 controls.
_SEQUENCES = re.compile(
    r"""
    (?: \x1b\[ | \x9b ) [0-?]* [ -/]* [@-~]
  | (?: \x1b[\]PX^_] | [\x9d\x90\x98\x9e\x9f] ) .*? (?: \x07 | \x1b\\ | \x9c | $ )
  | \x1b [ -/]* [0-~]?
    """,
    re.VERBOSE,
)
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""C0, DEL, C1, line separators and bidirectional overrides. None of them occupies a cell."""


_HALVES = re.compile(r"[\ud800-\udfff]")
"""Lone surrogates, which JSON can contain and no file can."""


def clean(text: str) -> str:
    """Remove terminal control sequences and control characters; tabs become spaces.

    Works on one line: pass lines, not whole files. Text that a progress bar overwrote with a
    carriage return is dropped. Bidirectional overrides are removed too, since they reorder what is
    shown.
    """
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part), "")
    if "\x1b" in text or not text.isprintable():
        text = CONTROLS.sub("", _SEQUENCES.sub("", text).expandtabs(8))
        text = _HALVES.sub("\ufffd", text)
    return text


def clean_lines(text: str) -> str:
    """Clean each line of the text; line ends are kept."""
    return text if text.isprintable() else "\n".join(map(clean, text.splitlines()))


def for_terminal(text: str) -> str:
    """Return text that is safe for a terminal: newlines and tabs are the only control characters.

    Text that a program reads from a pipe is not changed otherwise: tabs are not expanded and no
    line is dropped.
    """
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "\n".join(
        "\t".join(CONTROLS.sub("", part) for part in _SEQUENCES.sub("", line).split("\t"))
        for line in text.split("\n")
    )


def one_line(text: str, limit: int = 200) -> str:
    """The text as one clean line of at most `limit` characters, with an ellipsis if cut.

    A carriage return ends a line here: `evil\\rgood` must not be shown as `good`.
    """
    line = " ".join(clean(part) for part in text.splitlines()).strip()
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def as_sentence(text: str) -> str:
    """Turn a reason that was written to follow a colon into a sentence."""
    return f"{text[:1].upper()}{text[1:]}."
