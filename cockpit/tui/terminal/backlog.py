"""How many frames the terminal has not written yet.

Textual passes its frames to a writer thread; 30 of them may wait, and the next blocks the event
loop (textual.drivers._writer_thread). A terminal that does not read (a stalled connection, ctrl+s,
a suspended laptop) would block the UI, and show 30 old frames when it reads again. So while frames
wait, nothing is painted on the clock: the next frame shows the newest state.
"""

from __future__ import annotations

from queue import Queue

from textual.driver import Driver

MOST_WAITING = 2
"""A frame and its end; a terminal that reads has taken them long before the next tick."""


def frames_waiting(driver: Driver | None) -> int:
    """Writes that the terminal has not accepted; 0 for a driver without a queue."""
    queue = getattr(getattr(driver, "_writer_thread", None), "_queue", None)
    return queue.qsize() if isinstance(queue, Queue) else 0


def is_behind(driver: Driver | None) -> bool:
    return frames_waiting(driver) > MOST_WAITING
