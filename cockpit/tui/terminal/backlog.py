"""How far the terminal is behind what was painted.

Textual hands its frames to a thread that writes them; 30 of them wait, and the next blocks the
event loop (textual.drivers._writer_thread). A terminal that does not read (a stalled connection,
ctrl+s, a suspended laptop) would so stop the whole screen, and when it reads again show 30 old
pictures first. So nothing is painted on the clock while frames wait: what is painted next is the
newest state.
"""

from __future__ import annotations

from queue import Queue

from textual.driver import Driver

MOST_WAITING = 2
"""A frame and its end; a terminal that reads has taken them long before the next tick."""


def frames_waiting(driver: Driver | None) -> int:
    """Writes that the terminal has not taken; 0 for a driver that keeps none."""
    queue = getattr(getattr(driver, "_writer_thread", None), "_queue", None)
    return queue.qsize() if isinstance(queue, Queue) else 0


def is_behind(driver: Driver | None) -> bool:
    return frames_waiting(driver) > MOST_WAITING
