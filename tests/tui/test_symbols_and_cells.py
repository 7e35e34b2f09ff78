from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from cockpit.model.error import UsageError
from cockpit.tui.terminal.cells import fit, width_of
from cockpit.tui.terminal.symbols import Symbols, symbols, symbols_from, use_symbols
from cockpit.tui.widgets.chart.sparkline import sparkline
from tests.tui.conftest import Open


@pytest.fixture(autouse=True)
def _braille() -> Iterator[None]:
    use_symbols(Symbols.BRAILLE)
    yield
    use_symbols(None)


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("pod", 5, "pod  "),
        ("worker", 4, "wor…"),
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日 …"),
        ("two\nlines", 9, "two lines"),
        ("ab", 1, "…"),
        ("ab", 0, ""),
    ],
)
def test_a_text_takes_exactly_its_cells(text: str, width: int, shown: str) -> None:
    assert fit(text, width) == shown
    assert width_of(fit(text, width)) == width


def test_numbers_are_aligned_to_the_right() -> None:
    assert fit("7", 3, "right") == "  7"


def test_the_environment_chooses_the_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    use_symbols(None)
    monkeypatch.setenv("COCKPIT_SYMBOLS", "ASCII")
    assert symbols() is Symbols.ASCII
    assert symbols_from({}) is Symbols.BRAILLE


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1", "cp1252", "no-such"])
def test_locale_without_braille_gets_ascii_symbols(encoding: str) -> None:
    assert symbols_from({}, encoding) is Symbols.ASCII
    assert symbols_from({"COCKPIT_SYMBOLS": "block"}, encoding) is Symbols.BLOCK


def test_an_unknown_symbol_set_is_reported_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="braille, block, ascii"):
        symbols_from({"COCKPIT_SYMBOLS": "emoji"})


def test_a_sparkline_rises_with_its_values() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"


def test_a_sparkline_is_right_aligned_and_folds_what_does_not_fit() -> None:
    assert sparkline([0, 7], 4) == "  ▁█"
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert sparkline([], 3) == "   "
    assert len(sparkline(list(range(1000)), 10)) == 10


def test_a_sparkline_shows_nan_infinity_and_equal_values() -> None:
    assert sparkline([0, math.nan, math.inf, -math.inf, 1], 5) == "▁x█▁█"
    assert sparkline([3, 3], 2) == "▄▄"
    assert sparkline([math.inf], 1) == "█"


def test_pictures_in_ascii_hold_only_ascii() -> None:
    use_symbols(Symbols.ASCII)
    assert sparkline([0, 9, 5, 1], 4).isascii()


async def test_ascii_leaves_no_other_character_on_the_screen(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_symbols(Symbols.ASCII)
    try:
        async with cockpit(at_s=110, size=(120, 36)) as seen:
            for key in "12345?":
                await seen.press(key)
                assert seen.text.isascii(), [c for c in seen.text if not c.isascii()]
    finally:
        use_symbols(None)
