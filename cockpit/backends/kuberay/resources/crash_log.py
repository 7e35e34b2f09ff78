"""What a container that crashed said last, from its log: the reason that its exit code is not.

Asked for once for each crash, a few at a time, and only of pods that crash: at rest it costs no
request, however many pods there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.fields import items, mapping, text
from cockpit.backends.kuberay.resources.pod_reason import with_words
from cockpit.model.cluster import Pod, PodPhase
from cockpit.model.error import CockpitError

AT_ONCE = 4
KEPT = 200
LINES = 20
LONGEST_BYTES = 16_384
_Crash = tuple[str, int]
"""A pod's name, and how often it had been restarted."""


class CrashLogs:
    """`told` is called when words have come: ask `of` again. Belongs to one event loop."""

    def __init__(self, client: KubeClient, namespace: str, told: Callable[[], None]) -> None:
        self._client, self._told = client, told
        self._pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self._words: dict[_Crash, str] = {}
        self._asking: dict[_Crash, asyncio.Task[None]] = {}

    def of(self, pods: Iterable[Pod]) -> list[Pod]:
        """The pods, those that crashed with their last words in the reason, once known."""
        return [self._with_words(pod) if _crashed(pod) else pod for pod in pods]

    async def aclose(self) -> None:
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _with_words(self, pod: Pod) -> Pod:
        crash = (pod.name, pod.restarts)
        words = self._words.get(crash)
        if words is None:
            if crash not in self._asking and len(self._asking) < AT_ONCE:
                task = asyncio.create_task(self._ask(crash, previous=_is_restarted(pod)))
                self._asking[crash] = task
            return pod
        return replace(pod, reason=with_words(pod.reason, words)) if words else pod

    async def _ask(self, crash: _Crash, *, previous: bool) -> None:
        path = f"{self._pods_path}/{crash[0]}"
        try:
            containers = items(mapping(await self._client.get(path), "spec"), "containers")
            asked = {
                "container": text(containers[0], "name") if containers else "",
                "previous": str(previous).lower(),
                "tailLines": str(LINES),
                "limitBytes": str(LONGEST_BYTES),
            }
            words = await self._client.text(f"{path}/log", asked)
        except CockpitError:
            words = ""  # no right to logs, or the pod is gone: its exit code has to do
        finally:
            self._asking.pop(crash, None)
        while len(self._words) >= KEPT:
            del self._words[next(iter(self._words))]
        self._words[crash] = words
        self._told()


def _crashed(pod: Pod) -> bool:
    if pod.phase is PodPhase.FAILED:
        return "exit code" in pod.reason
    return not pod.ready and pod.phase is PodPhase.RUNNING and "exit code" in pod.reason


def _is_restarted(pod: Pod) -> bool:
    """Between two runs (a crash loop's wait) the run that ended is the previous one."""
    return pod.phase is not PodPhase.FAILED and pod.restarts > 0
