"""Curves as characters that hold several pixels each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from cockpit.tui.terminal.symbols import Symbols
from cockpit.tui.widgets.chart.plot import Trace


class _Cell(Struct, frozen=True):
    """The number of pixels in a character cell, and the character for each combination.

    Bits count column by column, each from the top.
    """

    wide: int
    high: int
    characters: str
    shade: str = ""
    """The character of a full cell; empty: single pixels are drawn."""


def _braille() -> str:
    # Unicode numbers the dots 1-3 and 7 down the left, 4-6 and 8 down the right.
    dots = (0x01, 0x02, 0x04, 0x40, 0x08, 0x10, 0x20, 0x80)
    return "".join(
        chr(0x2800 + sum(dot for n, dot in enumerate(dots) if bits >> n & 1)) for bits in range(256)
    )


_CELLS = {
    Symbols.BRAILLE: _Cell(2, 4, _braille()),
    # Bits: upper left, lower left, upper right, lower right.
    Symbols.BLOCK: _Cell(2, 2, " ▘▖▌▝▀▞▛▗▚▄▙▐▜▟█", "░"),
    # Bits: top, middle, bottom.
    Symbols.ASCII: _Cell(1, 3, " '-!_|:|", "."),
}


def pixels_wide(cells: int, symbols: Symbols) -> int:
    """The number of pixel columns of a number of cells."""
    return cells * _CELLS[symbols].wide


_BOARD = (0b01010101, 0b10101010)


class Canvas:
    """Pixels in cells of one character and one colour each; the last curve to touch it gives it."""

    def __init__(self, width: int, height: int, symbols: Symbols) -> None:
        self.width, self.height = width, height
        self._cell = _CELLS[symbols]
        self._bits = [bytearray(width) for _ in range(height)]
        self._shades = [bytearray(width) for _ in range(height)]
        self._owner = [bytearray(width) for _ in range(height)]

    def draw(self, curve: Trace, bottom: float, top: float, owner: int) -> None:
        """Draw a curve in a colour numbered from 0."""
        last_row = self.height * self._cell.high - 1
        scale = last_row / (top - bottom) if top > bottom else 0.0
        row = _rows(last_row + 1, bottom, top)
        joined = set(curve.joined)
        highs, bar = curve.high, self._bar
        before = -1
        end_row = 0
        for column, value in enumerate(curve.low):
            if value != value:
                continue
            # As `row` does, without a call: this is where a chart spends its time.
            greatest = highs[column]
            lower = (
                last_row if value <= bottom else 0 if value >= top else round((top - value) * scale)
            )
            upper = (
                lower
                if greatest == value
                else last_row
                if greatest <= bottom
                else 0
                if greatest >= top
                else round((top - greatest) * scale)
            )
            start_row, last_of_column = lower, lower
            if upper != lower:
                start_row, last_of_column = row(curve.first[column]), row(curve.last[column])
            if before >= 0 and column in joined:
                if column - before > 1:
                    end_row = self._slope(before, end_row, column, start_row, owner)
                if end_row < upper:
                    upper = end_row + 1
                elif end_row > lower:
                    lower = end_row - 1
            if upper > lower:
                upper, lower = lower, upper
            bar(column, upper, lower, owner)
            before, end_row = column, last_of_column

    def shade(
        self, lower: Sequence[float], upper: Sequence[float], bottom: float, top: float
    ) -> None:
        """Fill thinly between two lines, given by pixel column; NaN where there is nothing."""
        pixels, wide = self.height * self._cell.high, self._cell.wide
        row = _rows(pixels, bottom, top)
        for column, (low, high) in enumerate(zip(lower, upper, strict=True)):
            if low != low or high != high:
                continue
            begin, end = row(high), row(low)
            if self._cell.shade:
                for y in range(begin // self._cell.high, end // self._cell.high + 1):
                    self._shades[y][column // wide] = 1
                continue
            # Every other pixel, as on a chessboard; a cell is an even number of pixels high.
            high = self._cell.high
            x, shift = column // wide, column % wide * high
            pattern = _BOARD[column % 2] & ((1 << high) - 1)
            top_cell, bottom_cell = begin // high, end // high
            for y in range(top_cell, bottom_cell + 1):
                bits = pattern
                if y == top_cell:
                    bits &= -1 << (begin - y * high)
                if y == bottom_cell:
                    bits &= (1 << (end - y * high + 1)) - 1
                self._shades[y][x] |= bits << shift

    def shaded(self, y: int) -> list[tuple[int, str]]:
        """The filled cells of a row: (x, character). Curves are drawn over them."""
        characters, shade = self._cell.characters, self._cell.shade
        return [(x, shade or characters[bits]) for x, bits in enumerate(self._shades[y]) if bits]

    def row_of(self, value: float, bottom: float, top: float) -> int:
        """Which row of characters a value is drawn in."""
        high = self._cell.high
        return _rows(self.height * high, bottom, top)(value) // high

    def is_drawn(self, x: int, y: int) -> bool:
        return self._bits[y][x] != 0

    def drawn(self, y: int) -> list[tuple[int, str, int]]:
        """The cells of a row: (x, character, number of the colour)."""
        characters, owners = self._cell.characters, self._owner[y]
        return [(x, characters[bits], owners[x]) for x, bits in enumerate(self._bits[y]) if bits]

    def _slope(self, x0: int, y0: int, x1: int, y1: int, owner: int) -> int:
        """The line between two columns, without its ends; the row that it has reached."""
        previous = y0
        for x in range(x0 + 1, x1):
            y = y0 + round((y1 - y0) * (x - x0) / (x1 - x0))
            if y > previous:
                self._bar(x, previous + 1, y, owner)
            elif y < previous:
                self._bar(x, y, previous - 1, owner)
            else:
                self._bar(x, y, y, owner)
            previous = y
        return previous

    def _bar(self, column: int, upper: int, lower: int, owner: int) -> None:
        wide, high = self._cell.wide, self._cell.high
        x, shift = column // wide, column % wide * high
        y, last = upper // high, lower // high
        begin, end = upper - y * high, lower - last * high
        if y == last:
            self._bits[y][x] |= ((2 << end) - (1 << begin)) << shift
            self._owner[y][x] = owner
            return
        whole = (1 << high) - 1
        self._bits[y][x] |= (whole & -(1 << begin)) << shift
        self._owner[y][x] = owner
        for between in range(y + 1, last):
            self._bits[between][x] |= whole << shift
            self._owner[between][x] = owner
        self._bits[last][x] |= ((2 << end) - 1) << shift
        self._owner[last][x] = owner


def _rows(pixels: int, bottom: float, top: float) -> Callable[[float], int]:
    """Which row of pixels, from the top, a value is in; those beyond an end are at the end."""
    scale = (pixels - 1) / (top - bottom) if top > bottom else 0.0

    def row(value: float) -> int:
        if value >= top:
            return 0
        if value <= bottom:
            return pixels - 1
        return round((top - value) * scale)

    return row
