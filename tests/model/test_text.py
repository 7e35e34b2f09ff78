from __future__ import annotations

from unicodedata import category

import pytest

from cockpit.model.text import clean, one_line


@pytest.mark.parametrize(
    ("dirty", "wanted"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("\x1bPdevice control\x1b\\after", "after"),
        ("\x1b[?1049h\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b(0line\x1b(B", "line"),
        ("\x1b]52;c;aGk=", ""),
        ("a\x00b\x07c\x7fd", "abcd"),
        (" 10%\r 50%\r100%", "100%"),
        ("done\r", "done"),
        ("a\tb", "a       b"),
        ("safe \u202etxt.exe", "safe txt.exe"),
        ("ünïcode → 日本 🚀", "ünïcode → 日本 🚀"),
        ("\x1b", ""),
    ],
)
def test_no_control_sequence_survives(dirty: str, wanted: str) -> None:
    assert clean(dirty) == wanted


def test_no_control_character_remains_in_any_text() -> None:
    everything = "".join(map(chr, range(0x20A0)))
    pairs = (f"x{chr(i)}[31my{chr(j)}" for i in range(160) for j in range(160))
    for piece in (everything, *pairs):
        assert not [c for c in clean(piece) if category(c) in ("Cc", "Zl", "Zp")]


def test_one_line_joins_and_cuts() -> None:
    assert one_line("a\n  b\n\nc") == "a b c"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"
