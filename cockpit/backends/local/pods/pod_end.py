"""The end of pods: all of their processes are killed, until none is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from cockpit.backends.local.notices import NoticeWriter
from cockpit.backends.local.pods.live_pod import LivePod
from cockpit.backends.local.pods.process import Found, PodTrace, end, find
from cockpit.model.error import CockpitError

RETRY_S = 5.0
"""The pause before processes that did not end are killed again: an attempt scans /proc for 10 s."""


class PodEnd:
    def __init__(
        self,
        uid: str,
        root: str,
        traces: Callable[[], Sequence[PodTrace]],
        notices: NoticeWriter,
    ) -> None:
        """`traces`: of all pods of the cluster `uid`, whose directory is `root`."""
        self._uid, self._root, self._traces, self._notices = uid, root, traces, notices
        self._stuck: set[str] = set()
        """Pods for which a notice reports that they do not end."""

    async def once(self, names: Collection[str], traces: Sequence[PodTrace] | None = None) -> None:
        """For a request of a user: raises CockpitError when a process does not end."""
        known = self._traces() if traces is None else traces

        def left() -> list[Found]:
            return [found for found in find(self._uid, known, self._root) if found.pod in names]

        await asyncio.to_thread(end, left)

    async def at_last(self, pod: LivePod, traces: Sequence[PodTrace] | None = None) -> None:
        """End it, and retry for as long as a process of it does not end. A notice reports that.

        For everything except a request of a user: an error has no receiver here. It would end
        the operator, or the pod would keep its place and never be replaced. Stops when the pod
        is restarted with the head, which ends its processes then.
        """
        child = pod.child
        while pod.child is child:
            try:
                await self.once([pod.name], traces)
            except CockpitError as error:
                if pod.name not in self._stuck:
                    self._stuck.add(pod.name)
                    why = f"{error.what_and_why} They are killed again until they have ended."
                    self._notices.write("Pod", pod.name, "FailedKillPod", why, warning=True)
            else:
                self._stuck.discard(pod.name)
                return
            await asyncio.sleep(RETRY_S)
