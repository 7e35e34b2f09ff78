"""Reports of a run with replica groups: which replicas are its quorum.

The quorum's server and the telemetry's callback are both in Ray Train's controller, and created
independently.
"""

from __future__ import annotations

from collections.abc import Callable

from training.telemetry.wire import Heal

Listener = Callable[[int, int, tuple[int, ...], int, tuple[Heal, ...]], None]

_listener: Listener | None = None


def listen(listener: Listener | None) -> None:
    """Pass each new quorum to `listener`, on any thread: its number, the number of replicas, its
    members, the last committed step, and the ranks that heal.
    """
    global _listener
    _listener = listener


def changed(
    number: int, replicas: int, members: tuple[int, ...], step: int, heals: tuple[Heal, ...]
) -> None:
    if _listener is not None:
        _listener(number, replicas, members, step, heals)
