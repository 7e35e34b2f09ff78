"""A pod's own output as a source for the store."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from cockpit.backends.protocol import Backend
from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError, NotAllowedError, UsageError
from cockpit.model.event import Event, LogLines, SourceHealth, source_health
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.pause import pause

LINES = 1000
"""The last ones of a log that are read first, and again after each interruption."""
_CONTAINER = re.compile(r"\b(?:uid|restartCount): .*")
_OVER = re.compile(r"^  phase: (?:Succeeded|Failed)$", re.MULTILINE)
"""Both in the manifest of a pod."""


class PodLogSource:
    """LogLines and SourceHealth of one pod, both named `pod:NAME`; ends with the pod.

    A log ends when its container restarts, and may be cut; it is read again then. With `previous`
    it is that of the container before its last restart, named `previous:NAME`, and read once.
    """

    def __init__(
        self,
        backend: Backend,
        pod: str,
        *,
        previous: bool = False,
        clock: Callable[[], float] = server_time,
        backoff: Backoff | None = None,
    ) -> None:
        self.name = f"{'previous' if previous else 'pod'}:{pod}"
        self._backend, self._pod, self._clock = backend, pod, clock
        self._previous = previous
        self._backoff = backoff or Backoff()
        self._container: list[str] = []
        self._given: deque[str] = deque(maxlen=LINES)
        """The last lines of this container."""

    async def events(self) -> AsyncGenerator[Event, None]:
        was_read = False
        while True:
            goes_on: bool | None = None
            try:
                # Checked before reading: once the pod has ended, its log is complete.
                goes_on = await self._goes_on()
                async with aclosing(self._read()) as events:
                    async for event in events:
                        yield event
            except CockpitError as error:
                is_missing = isinstance(error, UsageError) and not goes_on
                if is_missing and was_read:
                    break
                if is_missing or self._previous or isinstance(error, NotAllowedError):
                    yield source_health(self._clock(), self.name, error)
                    return
                wait_s, now = self._backoff.failed(), self._clock()
                yield source_health(now, self.name, error, now + wait_s)
            else:
                was_read = True
                if goes_on is False:
                    break
                wait_s = self._backoff.failed()
                yield source_health(self._clock(), self.name)
            await pause(wait_s)
        # Nothing more will come, and nothing is wrong with that.
        yield SourceHealth(at_s=self._clock(), source=self.name, ok=True, absent=True)

    async def _goes_on(self) -> bool | None:
        """Whether the pod may write more; None where that is not known."""
        if self._previous:
            return False
        try:
            manifest = await self._backend.manifest("pod", self._pod)
        except (NotAllowedError, UsageError):
            return None  # without Kubernetes there are no manifests, and no restarts
        if (container := _CONTAINER.findall(manifest)) != self._container:
            self._container = container
            self._given.clear()
        return _OVER.search(manifest) is None

    async def _read(self) -> AsyncGenerator[Event, None]:
        """The lines that were not given yet: the log begins again with those that were."""
        given, read = Counter(self._given), 0
        lines = self._backend.logs(
            self._pod, follow=not self._previous, lines=LINES, previous=self._previous
        )
        async for line in lines:
            read += 1
            now = self._clock()
            # By their text, in any order: a pod on a host writes to several files.
            if read <= LINES and given[line] > 0:
                given[line] -= 1
                if read > 1:
                    continue
            else:
                self._given.append(line)
                self._backoff.worked()
                yield LogLines(at_s=now, source=self.name, stream=self.name, lines=(line,))
            yield source_health(now, self.name)
