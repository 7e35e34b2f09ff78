"""The replay in a report: pictures of the UI over time, and the script that plays them.

The script is the only one of the page, and its content security policy names it by its hash. The
pictures are text with styles; the script puts them into the page as text.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

Span: TypeAlias = tuple[str, int, int]
"""Text, the number of its style, and its width in cells."""


class Look(Struct, frozen=True):
    """The style of a text on a terminal; colours are `#rrggbb`, or empty."""

    front: str = ""
    back: str = ""
    bold: bool = False
    italic: bool = False
    underline: bool = False
    dim: bool = False

    @property
    def css(self) -> str:
        """Declarations."""
        parts = {
            "color": self.front,
            "background": self.back,
            "font-weight": "bold" if self.bold else "",
            "font-style": "italic" if self.italic else "",
            "text-decoration": "underline" if self.underline else "",
            "opacity": "0.6" if self.dim else "",
        }
        return "; ".join(f"{name}: {value}" for name, value in parts.items() if value)


class Frames(Struct):
    """The UI over time. `lines` holds each different line once."""

    columns: int
    views: Sequence[str]
    times: list[str] = field(default_factory=list)
    """By frame: what is shown as its time."""
    frames: list[list[list[int]]] = field(default_factory=list)
    """By frame and view: the numbers of its lines."""
    lines: list[tuple[Span, ...]] = field(default_factory=list)
    styles: list[Look] = field(default_factory=list)
    markers: list[tuple[int, str]] = field(default_factory=list)
    """A frame and a text: where a reader may jump to."""
    start: int = 0
    """The frame that is shown first."""


def script() -> str:
    return _resource("replay.js")


def policy() -> str:
    """The source of scripts for the page's content security policy."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return f"script-src 'sha256-{digest}'"


def style(frames: Frames) -> str:
    own = "\n".join(f"#screen .s{at} {{ {look.css} }}" for at, look in enumerate(frames.styles))
    return f"{_resource('replay.css')}{own}\n"


def section(frames: Frames) -> str:
    """The section with its data and its script; hidden where no script runs."""
    plain = replace(frames, styles=[])  # they are classes of the style sheet
    packed = base64.b64encode(zlib.compress(msgspec.json.encode(plain), 9)).decode()
    speeds = "".join(f'<option value="{n}">{n} frames/s</option>' for n in (8, 2, 4, 16))
    return "\n".join(
        (
            '<noscript><p class="note">The replay needs JavaScript.</p></noscript>',
            f'<section id="replay" hidden style="--columns: {int(frames.columns)}">',
            "<h2>Replay</h2>",
            '<div class="controls"><span id="views" role="group" aria-label="Views"></span></div>',
            '<div id="screen" tabindex="0" role="img" aria-label="The UI at this time"></div>',
            '<div class="controls"><button type="button" id="play">Play</button>'
            '<input type="range" id="position" min="0" value="0" aria-label="Position">'
            f'<output id="time"></output><select id="speed" aria-label="Speed">{speeds}</select>'
            "</div>",
            '<div id="markers" role="group" aria-label="Attempts, drills, alerts and marks"></div>',
            "</section>",
            f'<script type="application/octet-stream" id="replay-data">{escape(packed)}</script>',
            f"<script>{script()}</script>",
        )
    )


def _resource(name: str) -> str:
    return files("cockpit.report").joinpath(name).read_text(encoding="utf-8")
