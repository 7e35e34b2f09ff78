"""A chain as lines of text."""

from __future__ import annotations

from cockpit.model.waiting import Chain, LinkState


def lines(chain: Chain) -> list[str]:
    """One line for each stage, with what to do under each one that blocks."""
    width = max((len(link.stage) for link in chain.links), default=0)
    states = max((len(link.state) for link in chain.links), default=0)
    found = []
    for link in chain.links:
        line = f"  {link.stage:<{width}}  {link.state:<{states}}  {link.text}"
        found.append(line.rstrip())
        if link.todo and link.state in (LinkState.BLOCKING, LinkState.UNKNOWN):
            found.append(f"  {'':<{width}}  {'':<{states}}  To do: {link.todo}")
    return found
