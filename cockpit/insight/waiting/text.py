"""A chain as lines of text."""

from __future__ import annotations

import textwrap

from cockpit.model.waiting import Chain, LinkState

NARROWEST = 30
"""The fewest characters of the column of texts."""


def lines(chain: Chain, width: int | None = None) -> list[str]:
    """Each stage, with what to do under each one that blocks.

    `width`: in characters, for text that is wrapped inside its column; None: one line each.
    """
    stages = max((len(link.stage) for link in chain.links), default=0)
    states = max((len(link.state) for link in chain.links), default=0)
    found = []
    for link in chain.links:
        texts = [link.text]
        if link.todo and link.state in (LinkState.BLOCKING, LinkState.UNKNOWN):
            texts.append(f"To do: {link.todo}")
        start = f"  {link.stage:<{stages}}  {link.state:<{states}}  "
        room = None if width is None else max(NARROWEST, width - len(start))
        for text in texts:
            for line in [text] if room is None else textwrap.wrap(text, room) or [""]:
                found.append(f"{start}{line}".rstrip())
                start = " " * len(start)
    return found
