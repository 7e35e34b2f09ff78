"""The last log lines of crashed pods."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import KubeContext
from cockpit.backends.kuberay.resources.crash_log import CrashLogs
from cockpit.model.cluster import NodeType, Pod, PodPhase

CREDENTIALS = Credentials(KubeContext("here", "ml", "http://127.0.0.1:9", "u", {}, {}))
CRASH = {"terminated": {"exitCode": 1, "reason": "Error"}}
RUNS = {"name": "ray", "ready": True, "restartCount": 1, "state": {"running": {}}}
LOOP = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": CRASH}


class Api(KubeClient):
    def __init__(self, *statuses: Mapping[str, Any], phase: str = "Running") -> None:
        super().__init__(CREDENTIALS)
        self.pod = {
            "metadata": {"name": "w"},
            "spec": {"containers": [{"name": "ray"}, {"name": "sidecar"}]},
            "status": {"phase": phase, "containerStatuses": list(statuses)},
        }
        self.read: list[tuple[str, str]] = []
        """Pod and container of each log."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        return self.pod

    async def text(self, path: str, params: Mapping[str, str] | None = None) -> str:
        self.read.append((path.split("/")[-2], (params or {})["container"]))
        return "boom\n"


def crashed(name: str) -> Pod:
    reason = "crash loop, 1 restart: exit code 1"
    return Pod(name, "gpu", NodeType.WORKER, PodPhase.RUNNING, False, restarts=1, reason=reason)


class Reader:
    def __init__(self, api: Api) -> None:
        self.news = asyncio.Event()
        self.logs = CrashLogs(api, "ml", self.news.set)

    async def shown(self, pods: Sequence[Pod]) -> None:
        """Wait until all have their line."""
        async with asyncio.timeout(10):
            while True:
                self.news.clear()
                if all(pod.reason.endswith("exit code 1: boom") for pod in self.logs.of(pods)):
                    break
                await self.news.wait()


async def test_each_of_very_many_logs_is_read_once_for_each_crash() -> None:
    api = Api()
    reader = Reader(api)
    pods = [crashed(f"w-{number}") for number in range(500)]
    await reader.shown(pods)
    assert sorted(name for name, _ in api.read) == sorted(pod.name for pod in pods)
    again = [replace(pods[0], restarts=2), *pods[1:]]
    await reader.shown(again)
    assert [name for name, _ in api.read[500:]] == ["w-0"]
    reader.logs.of(again[1:])
    await reader.shown(again)
    assert [name for name, _ in api.read[501:]] == ["w-0"], "that of a deleted pod is not kept"


@pytest.mark.parametrize(
    ("phase", "ray", "sidecar", "container"),
    [
        ("Running", RUNS, LOOP, "sidecar"),
        ("Running", RUNS | LOOP | {"ready": False}, LOOP, "ray"),
        ("Failed", RUNS | {"state": {"terminated": {"exitCode": 0}}}, {"state": CRASH}, "sidecar"),
        ("Running", {}, {}, "ray"),
    ],
)
async def test_log_is_that_of_the_container_that_ended(
    phase: str, ray: dict[str, Any], sidecar: dict[str, Any], container: str
) -> None:
    api = Api(ray, {"name": "sidecar", **sidecar}, phase=phase)
    await Reader(api).shown([crashed("w")])
    assert api.read == [("w", container)]
