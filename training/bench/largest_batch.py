"""The largest batch that fits: doubled until it does not, then halved in between. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def edge(
    attempt: Callable[[int], T | None], start: int = 1, most: int = 1 << 20, fine: int = 8
) -> list[tuple[int, T]]:
    """What the attempts gave that fit, by size, smallest first; empty when not even `start` does.

    `attempt(size)` is None when that does not fit. Between what fits and what does not no more than
    a part in `fine` is left; beyond `most` nothing is tried.
    """
    found: dict[int, T] = {}
    size, above = start, 0
    while size <= most:
        given = attempt(size)
        if given is None:
            above = size
            break
        found[size] = given
        size *= 2
    below = max(found, default=0)
    while above and below and above - below > max(1, below // fine):
        middle = (below + above) // 2
        given = attempt(middle)
        if given is None:
            above = middle
        else:
            found[middle], below = given, middle
    return sorted(found.items())
