"""The largest batch that fits, by doubling and then bisection. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def edge(
    attempt: Callable[[int], T | None], start: int = 1, most: int = 1 << 20, fine: int = 8
) -> list[tuple[int, T]]:
    """The results of the attempts that fit, by size, smallest first; empty if `start` does not fit.

    `attempt(size)` is None if the size does not fit. The search ends when the largest size that
    fits and the smallest that does not differ by at most a part in `fine`; sizes above `most` are
    not tried.
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
