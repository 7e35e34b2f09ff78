"""A replay as an animated SVG, which plays wherever an image can be shown, without a script.

The frames are below each other, and the animation moves them through the window in steps. A line
that several frames have is drawn once and referred to.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from html import escape
from itertools import accumulate

from cockpit.report.replay import Frames, Look, Span

CELL, LINE = 8.4, 17.0
"""Of a character, in pixels at a font size of 14."""
FONT = "14px 'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace"
_PIECES = re.compile("[!-~]+(?: [!-~]+)*|[^ -~]{1,6}")
"""Without the spaces between: some renderers drop them. Non-ASCII text is in short pieces: a font
may draw braille wider than its letters."""


def svg(frames: Frames, seconds: float, *, title: str = "") -> str:
    """The first view of each frame, all of them in `seconds`, again and again."""
    rows = max(len(frame[0]) for frame in frames.frames)
    width, height = frames.columns * CELL, rows * LINE
    back = _most_common_back(frames)
    lines = "".join(_line(number, spans, frames, back) for number, spans in enumerate(frames.lines))
    pictures = "".join(_frame(at, frame[0], height) for at, frame in enumerate(frames.frames))
    return "".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            f' width="{width:g}" height="{height:g}" role="img">',
            f"<title>{escape(title)}</title>" if title else "",
            f"<style>{_style(frames, seconds, height)}</style>",
            f'<rect width="{width:g}" height="{height:g}" fill="{back}"/>',
            f"<defs>{lines}</defs>",
            f'<g id="film">{pictures}</g>',
            "</svg>\n",
        )
    )


def _style(frames: Frames, seconds: float, height: float) -> str:
    """The classes of the text, and the film's position at the beginning of each frame."""
    count = len(frames.frames)
    steps = "".join(
        f"{100 * at / count:.3f}%{{transform:translateY({-height * at:g}px)}}"
        for at in range(count)
    )
    texts = "".join(f".s{at}{{{_text_css(look)}}}" for at, look in enumerate(frames.styles))
    return (
        f"text{{font:{FONT};white-space:pre;dominant-baseline:middle}}{texts}"
        f"@keyframes film{{{steps}}}"
        f"#film{{animation:film {seconds:g}s step-end infinite}}"
        # Who does not want motion sees the last frame.
        f"@media(prefers-reduced-motion:reduce){{#film{{animation:none;"
        f"transform:translateY({-height * (count - 1):g}px)}}}}"
    )


def _text_css(look: Look) -> str:
    parts = [f"fill:{look.front}" if look.front else ""]
    parts += ["font-weight:bold" if look.bold else "", "font-style:italic" if look.italic else ""]
    parts += ["text-decoration:underline" if look.underline else ""]
    parts += ["opacity:.6" if look.dim else ""]
    return ";".join(part for part in parts if part)


def _frame(at: int, numbers: list[int], height: float) -> str:
    uses = "".join(
        f'<use href="#l{number}" y="{height * at + LINE * row:g}"/>'
        for row, number in enumerate(numbers)
    )
    return f"<g>{uses}</g>"


def _line(number: int, spans: tuple[Span, ...], frames: Frames, back: str) -> str:
    return f'<g id="l{number}">{"".join(_spans(spans, frames, back))}</g>'


def _spans(spans: tuple[Span, ...], frames: Frames, back: str) -> Iterator[str]:
    """First the backgrounds that differ from the window's, then the text."""
    places: list[tuple[float, Span]] = []
    at = 0
    for span in spans:
        places.append((at * CELL, span))
        at += span[2]
    for x, (_, style, cells) in places:
        colour = frames.styles[style].back
        if colour and colour != back:
            yield f'<rect x="{x:g}" width="{cells * CELL:g}" height="{LINE:g}" fill="{colour}"/>'
    for x, (text, style, cells) in places:
        if text.strip():
            yield from _texts(text, style, cells, x)


def _texts(text: str, style: int, cells: int, x: float) -> Iterator[str]:
    """Each piece at its own place, at the width that it has on a terminal."""
    ends = list(accumulate(map(_cells, text), initial=0))
    scale = CELL * cells / ends[-1] if ends[-1] else CELL
    for piece in _PIECES.finditer(text):
        begin, end = ends[piece.start()], ends[piece.end()]
        yield (
            f'<text class="s{style}" x="{x + begin * scale:.1f}" y="{LINE / 2:g}"'
            f' textLength="{(end - begin) * scale:.1f}">{escape(piece.group())}</text>'
        )


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _most_common_back(frames: Frames) -> str:
    """The colour of most cells: that of the window."""
    cells: dict[str, int] = {}
    for spans in frames.lines:
        for _, style, count in spans:
            colour = frames.styles[style].back
            cells[colour] = cells.get(colour, 0) + count
    cells.pop("", None)
    return max(cells, key=cells.__getitem__, default="#000000")
