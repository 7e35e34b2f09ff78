"""The last log line of a crashed container, since its exit code gives no reason.

Requested once for each crash, a few concurrently, and only for crashing pods: at rest it costs no
request, however many pods there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.fields import items, mapping, text
from cockpit.backends.kuberay.resources.pod_reason import (
    last_log_line,
    of_container,
    with_context,
    with_last_log_line,
)
from cockpit.model.cluster import KubernetesNode, Pod, PodPhase
from cockpit.model.error import CockpitError
from cockpit.model.event import Notice

AT_ONCE = 4
LINES = 20
LONGEST_BYTES = 16_384
_Crash = tuple[str, int]
"""A pod's name, and how often it had been restarted."""


class CrashLogs:
    """`on_log` is called when a log has arrived: call `of` again. Belongs to one event loop."""

    def __init__(self, client: KubeClient, namespace: str, on_log: Callable[[], None]) -> None:
        self._client, self._on_log = client, on_log
        self._pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self._logs: dict[_Crash, str] = {}
        self._requests: dict[_Crash, asyncio.Task[None]] = {}

    def of(self, pods: Iterable[Pod]) -> list[Pod]:
        """Add the last line of its log to the reason of each pod that crashed, once it is known."""
        listed = list(pods)
        if self._logs:
            there = {(pod.name, pod.restarts) for pod in listed}
            self._logs = {crash: log for crash, log in self._logs.items() if crash in there}
        return [self._with_log(pod) if _crashed(pod) else pod for pod in listed]

    async def aclose(self) -> None:
        requests = list(self._requests.values())
        for task in requests:
            task.cancel()
        await asyncio.gather(*requests, return_exceptions=True)

    def _with_log(self, pod: Pod) -> Pod:
        crash = (pod.name, pod.restarts)
        log = self._logs.get(crash)
        if log is None:
            if crash not in self._requests and len(self._requests) < AT_ONCE:
                task = asyncio.create_task(self._read_log(crash, previous=_is_restarted(pod)))
                self._requests[crash] = task
            return pod
        return replace(pod, reason=with_last_log_line(pod.reason, log)) if log else pod

    async def _read_log(self, crash: _Crash, *, previous: bool) -> None:
        path = f"{self._pods_path}/{crash[0]}"
        try:
            raw = await self._client.get(path)
            containers = items(mapping(raw, "spec"), "containers")
            first = text(containers[0], "name") if containers else ""
            query = {
                "container": of_container(raw) or first,
                "previous": str(previous).lower(),
                "tailLines": str(LINES),
                "limitBytes": str(LONGEST_BYTES),
            }
            log = last_log_line(await self._client.text(f"{path}/log", query))
        except CockpitError:
            log = ""  # no permission to read logs, or the pod is deleted: the exit code is shown
        finally:
            self._requests.pop(crash, None)
        self._logs[crash] = log
        self._on_log()


def _crashed(pod: Pod) -> bool:
    if pod.phase is PodPhase.FAILED:
        return "exit code" in pod.reason
    return not pod.ready and pod.phase is PodPhase.RUNNING and "exit code" in pod.reason


def _is_restarted(pod: Pod) -> bool:
    """Between two runs (a crash loop's wait) the run that ended is the previous one."""
    return pod.phase is not PodPhase.FAILED and pod.restarts > 0


_PAST = (PodPhase.FAILED, PodPhase.SUCCEEDED)


def explained(
    pods: Iterable[Pod], notices: Iterable[Notice], nodes: Iterable[KubernetesNode]
) -> list[Pod]:
    """The pods; unready ones with the reason from a warning or their node."""
    lost = {node.name: node.reason for node in nodes if not node.ready}
    listed = list(pods)
    if all(pod.ready for pod in listed) and not lost:
        return listed
    warnings: dict[str, Notice] = {}
    for notice in notices:
        if notice.warning and notice.kind == "Pod":
            before = warnings.get(notice.name)
            if before is None or before.at_s <= notice.at_s:
                warnings[notice.name] = notice
    return [_explained(pod, warnings, lost) for pod in listed]


def _explained(pod: Pod, warnings: Mapping[str, Notice], lost: Mapping[str, str]) -> Pod:
    if pod.phase in _PAST or (pod.ready and pod.host not in lost):
        return pod
    warning = warnings.get(pod.name)
    message = warning.message if warning is not None else ""
    reported = with_context(
        pod.reason,
        warning=message,
        lost_node=(lost[pod.host] or "it is not ready") if pod.host in lost else "",
    )
    return pod if reported == pod.reason else replace(pod, reason=reported)
