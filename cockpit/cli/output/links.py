"""Links in the terminal (OSC 8), which a click opens; elsewhere only their text is printed.

See https://iterm2.com/documentation-escape-codes.html.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from cockpit.cli.output.streams import NO_SCREEN, Gated
from cockpit.model.text import one_line

SCHEMES = ("http://", "https://", "file://")
MOST_CHARS = 2_083
"""Longer links are ignored by terminals of VTE and iTerm2."""
WITHOUT = (*NO_SCREEN, "linux")
"""Values of TERM for terminals that print the sequence or ignore it."""


def supported(file: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the file is a terminal that may show links: never a pipe, never with NO_COLOR."""
    plain = environment.get("NO_COLOR") or environment.get("TERM", "") in ("", *WITHOUT)
    return isinstance(file, Gated) and file.isatty() and not plain


def write(text: str, url: str, file: TextIO | None = None) -> None:
    """Write the text, as a link where that is possible and the URL is a plain one."""
    stream = sys.stdout if file is None else file
    good = url.startswith(SCHEMES) and url.isascii() and url.isprintable() and " " not in url
    if good and len(url) <= MOST_CHARS and text.strip() and supported(stream):
        assert isinstance(stream, Gated)
        label = text.rstrip()
        stream.write_raw(f"\x1b]8;;{url}\x1b\\{one_line(label, len(label))}\x1b]8;;\x1b\\")
        text = text[len(label) :]
    stream.write(text)
