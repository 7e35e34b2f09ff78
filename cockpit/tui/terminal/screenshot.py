"""The screen as files: SVG for people, text for tickets."""

from __future__ import annotations

import os
import re
import time
from html import escape, unescape
from pathlib import Path

from textual._context import visible_screen_stack
from textual.app import App

from cockpit.config import paths
from cockpit.tui.terminal.cells import width_of

FONTS = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
"""Of every system one; each draws braille and boxes in one cell."""

_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")
_TEXT = re.compile(
    r'<text class="(?P<class>[^"]+)" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" textLength="[\d.]+"'
    r' clip-path="(?P<clip>[^"]+)">(?P<text>[^<]*)</text>'
)
_RUNS_OF_TEXT = re.compile("[ -~]+(?:\xa0[ -~]+)*|[^ -~\xa0]{1,6}")
"""Non-ASCII text is in short pieces: a font may draw braille wider than its letters."""
_CELL = 12.2
"""How wide Rich's export draws one cell, in pixels."""
_FAMILY = re.compile(r"font-family:\s*(?:Fira Code|arial)[^;]*;")


def svg_of(app: App[int], title: str = "cockpit") -> str:
    """The UI as SVG that loads nothing: Textual's own loads its font from another host."""
    svg = _FONT_FACE.sub("", app.export_screenshot(title=title))
    return _TEXT.sub(_placed, _FAMILY.sub(f"font-family: {FONTS};", svg))


def _placed(found: re.Match[str]) -> str:
    """Each group without double spaces has its own position: some renderers drop spaces at a text's
    start.
    """
    text, x = unescape(found["text"]), float(found["x"])
    return "".join(
        f'<text class="{found["class"]}" x="{x + width_of(text[: message.start()]) * _CELL:.1f}"'
        f' y="{found["y"]}" textLength="{width_of(message.group()) * _CELL:.1f}"'
        f' clip-path="{found["clip"]}">{escape(message.group()).replace(chr(160), "&#160;")}</text>'
        for message in _RUNS_OF_TEXT.finditer(text)
    )


def text_of(app: App[int]) -> str:
    """The content of the terminal, without colours."""
    width, height = app.size
    compositor = app.screen._compositor
    # The screens under a dialog: Textual takes them from the list as it renders them.
    visible_screen_stack.set(app._background_screens)
    strips = compositor.render_strips()
    lines = ["".join(segment.text for segment in strip).rstrip() for strip in strips[:height]]
    return "\n".join(line[:width] for line in lines) + "\n"


def save(app: App[int], *places: Path) -> Path:
    """Write NAME.svg and NAME.txt into the first place that can be written; returns the NAME."""
    place = next((p for p in places if os.access(p, os.W_OK)), places[-1])
    paths.make_private(place)
    name = place / time.strftime("cockpit-%Y%m%d-%H%M%S")
    name.with_suffix(".svg").write_text(svg_of(app), encoding="utf-8")
    name.with_suffix(".txt").write_text(text_of(app), encoding="utf-8")
    return name
