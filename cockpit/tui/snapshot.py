"""The screen as files: SVG for people, text for tickets."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from textual.app import App

FONTS = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
"""Of every system one; each draws braille and boxes in one cell."""

_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_FAMILY = re.compile(r"font-family:\s*(?:Fira Code|arial)[^;]*;")


def svg_of(app: App[int], title: str = "cockpit") -> str:
    """The screen as SVG that loads nothing: Textual's own asks another host for its font."""
    svg = _FONT_FACE.sub("", app.export_screenshot(title=title))
    return _FAMILY.sub(f"font-family: {FONTS};", svg)


def text_of(app: App[int]) -> str:
    """What the terminal shows now, without colours."""
    width, height = app.size
    compositor = app.screen._compositor
    strips = compositor.render_strips()
    lines = ["".join(segment.text for segment in strip).rstrip() for strip in strips[:height]]
    return "\n".join(line[:width] for line in lines) + "\n"


def save(app: App[int], *places: Path) -> Path:
    """Write NAME.svg and NAME.txt into the first place that can be written; returns the NAME."""
    place = next((p for p in places if os.access(p, os.W_OK)), places[-1])
    place.mkdir(parents=True, exist_ok=True)
    name = place / time.strftime("cockpit-%Y%m%d-%H%M%S")
    name.with_suffix(".svg").write_text(svg_of(app), encoding="utf-8")
    name.with_suffix(".txt").write_text(text_of(app), encoding="utf-8")
    return name
