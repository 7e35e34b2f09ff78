"""A pod's own output as a source for the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from cockpit.backends.protocol import Backend
from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError
from cockpit.model.event import Event, LogLines, SourceHealth, source_health


class PodLogSource:
    """LogLines and SourceHealth of one pod, both named `pod:NAME`; ends when the log does.

    With `previous` it is that of the container before its last restart, and named `previous:NAME`.
    """

    def __init__(
        self,
        backend: Backend,
        pod: str,
        *,
        previous: bool = False,
        clock: Callable[[], float] = server_time,
    ) -> None:
        self.name = f"{'previous' if previous else 'pod'}:{pod}"
        self._backend, self._pod, self._clock = backend, pod, clock
        self._previous = previous

    async def events(self) -> AsyncIterator[Event]:
        try:
            lines = self._backend.logs(
                self._pod, follow=not self._previous, previous=self._previous
            )
            async for line in lines:
                now = self._clock()
                yield LogLines(at_s=now, source=self.name, stream=self.name, lines=(line,))
                yield source_health(now, self.name)
        except CockpitError as error:
            yield source_health(self._clock(), self.name, error)
            return
        yield SourceHealth(at_s=self._clock(), source=self.name, ok=True, absent=True)
