"""Parse py-spy's flame graph: the number of samples of each function. Pure.

py-spy draws with inferno, which writes the start and the width of each frame in samples into its
rectangle (`fg:x`, `fg:w`), and the function and its samples into its title. The self time of a
function is its width minus that of the frames directly above it.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict

from msgspec import Struct

from cockpit.model.text import one_line

_FRAME = re.compile(
    rb"<g><title>(?P<title>[^<]*)</title>"
    rb"<rect (?=[^>]*\by=\"(?P<y>[\d.]+)\")(?=[^>]*\bfg:x=\"(?P<x>\d+)\")"
    rb"(?=[^>]*\bfg:w=\"(?P<w>\d+)\")[^>]*/?>"
)
_TITLE = re.compile(r"(?P<name>.*?) \([\d,]+ samples?, [\d.]+%\)")


class Hot(Struct, frozen=True):
    """One function: `self_percent` of the samples were in it, `total_percent` in or above it."""

    name: str
    self_percent: float
    total_percent: float


class Profile(Struct, frozen=True):
    """A flame graph, and its numbers."""

    svg: bytes
    seconds: float
    samples: int
    hot: tuple[Hot, ...] = ()
    """The functions with self time, most first."""


class _Box(Struct, frozen=True):
    name: str
    x: int
    width: int
    y: float


def profile(svg: bytes, seconds: float) -> Profile:
    """Parse the picture. An unknown format yields no functions, and the picture is kept."""
    boxes = []
    for match in _FRAME.finditer(svg):
        title = html.unescape(match["title"].decode(errors="replace"))
        named = _TITLE.fullmatch(title)
        name = one_line(named["name"] if named else title)
        boxes.append(_Box(name, int(match["x"]), int(match["w"]), float(match["y"])))
    samples = max((box.width for box in boxes), default=0)
    if not samples:
        return Profile(svg, seconds, 0)
    own = _own(boxes)
    total = _totals(boxes)
    hot = [
        Hot(name, 100 * width / samples, 100 * total[name] / samples)
        for name, width in own.items()
        if width > 0 and name != "all"
    ]
    hot.sort(key=lambda one: (-one.self_percent, one.name))
    return Profile(svg, seconds, samples, tuple(hot))


def _own(boxes: list[_Box]) -> dict[str, int]:
    """By function, the samples in none of the functions that it called."""
    own: dict[str, int] = defaultdict(int)
    rows = sorted({box.y for box in boxes})
    upward = _grows_up(boxes)
    rows = rows[::-1] if upward else rows
    by_row = {y: sorted((b for b in boxes if b.y == y), key=lambda b: b.x) for y in rows}
    for here, above in zip(rows, [*rows[1:], None], strict=True):
        children = by_row[above] if above is not None else []
        at = 0
        for box in by_row[here]:
            covered = 0
            while at < len(children) and children[at].x < box.x + box.width:
                covered += children[at].width
                at += 1
            own[box.name] += max(0, box.width - covered)
    return own


def _totals(boxes: list[_Box]) -> dict[str, int]:
    """By function, the samples in it or in what it called; a recursion counts once."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for box in boxes:
        spans[box.name].append((box.x, box.x + box.width))
    found = {}
    for name, listed in spans.items():
        total, end = 0, -1
        for begin, stop in sorted(listed):
            total += max(0, stop - max(begin, end))
            end = max(end, stop)
        found[name] = total
    return found


def _grows_up(boxes: list[_Box]) -> bool:
    """Whether callers are drawn under what they call; py-spy draws them above."""
    widest = max(boxes, key=lambda box: box.width)
    roots = [box.y for box in boxes if box.width == widest.width and box.name == "all"]
    return bool(roots) and roots[0] == max(box.y for box in boxes)
