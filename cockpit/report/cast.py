"""A replay as a terminal cast: asciicast v2, which asciinema plays.

Format: https://docs.asciinema.org/manual/asciicast/v2/. Each frame writes only the lines that
differ from those of the frame before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from cockpit.model.text import clean
from cockpit.report.replay import Frames, Look, Span

RESET = "\x1b[0m"


def cast(frames: Frames, seconds: float, *, title: str = "") -> str:
    """The first view of each frame, all of them in `seconds`. The last frame stays for its part."""
    rows = max(len(frame[0]) for frame in frames.frames)
    header = {"version": 2, "width": frames.columns, "height": rows, "title": title}
    lines = [json.dumps(header)]
    each_s = seconds / len(frames.frames)
    for at, text in enumerate(_texts(frames)):
        if text:
            lines.append(json.dumps([round(at * each_s, 3), "o", text], ensure_ascii=False))
    lines.append(json.dumps([round(seconds, 3), "o", RESET]))
    return "\n".join(lines) + "\n"


def _texts(frames: Frames) -> Iterator[str]:
    """What each frame writes; empty if nothing changes."""
    codes = [_code(look) for look in frames.styles]
    before: list[int] = []
    for frame in frames.frames:
        now = frame[0]
        changed = [
            f"\x1b[{row};1H{_line(frames.lines[number], codes)}"
            for row, number in enumerate(now, 1)
            if row > len(before) or before[row - 1] != number
        ]
        # The cursor is hidden at the start, as the UI hides it.
        yield ("\x1b[?25l\x1b[2J" if not before else "") + "".join(changed)
        before = now


def _line(spans: tuple[Span, ...], codes: list[str]) -> str:
    text = "".join(f"{codes[style]}{clean(text)}" for text, style, _ in spans)
    return f"{text}{RESET}\x1b[K"


def _code(look: Look) -> str:
    """The SGR sequence: a reset first, so that nothing of the style before is left."""
    numbers = ["0"]
    numbers += [code for code, on in (("1", look.bold), ("2", look.dim)) if on]
    numbers += [code for code, on in (("3", look.italic), ("4", look.underline)) if on]
    for kind, colour in (("38", look.front), ("48", look.back)):
        if colour:
            channels = (str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
            numbers.append(f"{kind};2;{';'.join(channels)}")
    return f"\x1b[{';'.join(numbers)}m"
