"""A share as a bar of text."""

from __future__ import annotations

import math

from cockpit.format import DASH
from cockpit.tui.terminal.symbols import Symbols, symbols

_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(share: float, width: int) -> str:
    """`width` cells, of which `share` (0 to 1, clipped) are full."""
    share = 0.0 if math.isnan(share) else min(1.0, max(0.0, share))
    if symbols() is Symbols.ASCII:
        full = round(share * width)
        return "#" * full + "." * (width - full)
    full, rest = divmod(round(share * width * 8), 8)
    part = _EIGHTHS[rest] if rest else ""
    return "█" * full + part + "░" * (width - full - len(part))


def meter(share: float | None, width: int) -> str:
    """`███░░ 62 %`, where `width` is that of the bar; `–` when not known."""
    if share is None or math.isnan(share):
        return f"{' ' * width} {DASH}"
    return f"{bar(share, width)} {100 * share:.0f} %"
