"""A pod's own output as a source for the store."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

from cockpit.backends.protocol import Backend
from cockpit.model.error import CockpitError
from cockpit.model.event import Event, LogLines, SourceHealth
from cockpit.model.text import one_line


class PodLogSource:
    """LogLines and SourceHealth of one pod, both named `pod:NAME`; ends when the log does."""

    def __init__(
        self, backend: Backend, pod: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.name = f"pod:{pod}"
        self._backend, self._pod, self._clock = backend, pod, clock

    async def events(self) -> AsyncIterator[Event]:
        try:
            async for line in self._backend.logs(self._pod, follow=True):
                now = self._clock()
                yield LogLines(at_s=now, source=self.name, stream=self.name, lines=(line,))
                yield SourceHealth(at_s=now, source=self.name, ok=True)
        except CockpitError as error:
            yield SourceHealth(
                at_s=self._clock(), source=self.name, ok=False, error=one_line(str(error))
            )
            return
        yield SourceHealth(at_s=self._clock(), source=self.name, ok=True, absent=True)
