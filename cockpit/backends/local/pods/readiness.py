"""Whether pods are ready: the GCS listens, and lists the pod's node as alive."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from cockpit.backends.local.address import require_own_listener
from cockpit.backends.local.pods.pods import Pods
from cockpit.backends.local.spec import ClusterSpec
from cockpit.model.decoding.limited_json import MAX_BYTES, loads
from cockpit.model.error import CockpitError
from cockpit.sources.polling.pause import pause

STARTING_PERIOD_S = 0.2
REST_PERIOD_S = 5.0
"""Kubernetes' and KubeRay's period for readiness."""
MISSES = 3
"""Questions in a row without an answer before a head is no longer ready."""


class Probe:
    def __init__(self, spec: ClusterSpec, token: str, pods: Pods, wake: Callable[[], None]) -> None:
        self._spec, self._token, self._pods, self._wake = spec, token, pods, wake
        self._misses = 0
        self.ray_version = ""

    async def run(self) -> None:
        while True:
            await self._poll()
            starting = not all(pod.pod.ready for pod in self._pods.started) or not self._pods.head
            waited_s = 0.0
            # In short sleeps, so that a pod that is started in between is checked soon.
            while waited_s < (STARTING_PERIOD_S if starting else REST_PERIOD_S):
                await pause(STARTING_PERIOD_S)
                waited_s += STARTING_PERIOD_S
                starting = starting or any(pod.ready_s is None for pod in self._pods.started)

    async def _poll(self) -> None:
        head = self._pods.head
        if head is None or head.process is None:
            return
        asked = {pod.name: pod.process for pod in self._pods.started}
        if not self._pods.gcs_listens:
            if await self._gcs_answers() and self._pods.head is head:
                self._pods.gcs_listens = True
                self._wake()
            return
        nodes = await asyncio.to_thread(
            ask_nodes, self._spec.head_ip, self._spec.dashboard_port, self._token
        )
        if nodes is not None and not self.ray_version:
            self.ray_version = await asyncio.to_thread(
                ask_version, self._spec.head_ip, self._spec.dashboard_port, self._token
            )
        # A pod that was restarted in between has the same address: the answer is not about it.
        if any(pod.process != asked.get(pod.name, pod.process) for pod in self._pods.started):
            return
        self._apply(nodes)

    async def _gcs_answers(self) -> bool:
        try:
            async with asyncio.timeout(1.0):
                _, writer = await asyncio.open_connection(self._spec.head_ip, self._spec.gcs_port)
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    def _apply(self, nodes: RayNodes | None) -> None:
        if nodes is None:
            self._misses += 1
            head = self._pods.head
            if head is not None and head.pod.ready and self._misses >= MISSES:
                self._pods.unregister(head, "the dashboard does not answer")
                self._wake()
            return
        self._misses = 0
        for pod in self._pods.started:
            is_registered = pod.pod.ip in nodes.alive
            if is_registered and not pod.pod.ready:
                self._pods.register(pod)
                self._wake()
            elif pod.pod.ready and pod.pod.ip in nodes.dead:
                why = nodes.dead[pod.pod.ip] or "no reason given"
                if pod.kill_at_s is None:
                    self._pods.unregister(pod, f"Ray has declared its node dead: {why}")
                    self._wake()


class RayNodes(Struct, frozen=True):
    """The addresses of the living nodes, and Ray's message on each dead one by its address."""

    alive: frozenset[str]
    dead: Mapping[str, str]


def ask_nodes(host: str, port: int, token: str, timeout_s: float = 5.0) -> RayNodes | None:
    """None while the head does not answer, or not yet sensibly. Blocks: run it in a thread."""
    raw = _get_json(host, port, token, "/api/v0/nodes?limit=10000", timeout_s)
    try:
        nodes = raw["data"]["result"]["result"] if raw else None
        if nodes is None:
            return None
        alive = {str(node["node_ip"]) for node in nodes if node["state"] == "ALIVE"}
        dead = {
            str(node["node_ip"]): str(node["state_message"] or "")
            for node in nodes
            if node["state"] == "DEAD" and node["node_ip"] not in alive
        }
    except (KeyError, TypeError):
        return None
    return RayNodes(frozenset(alive), dead)


def ask_version(host: str, port: int, token: str, timeout_s: float = 5.0) -> str:
    """Ray's version, or an empty text."""
    raw = _get_json(host, port, token, "/api/version", timeout_s)
    return str(raw.get("ray_version", "")) if raw else ""


def _get_json(
    host: str, port: int, token: str, path: str, timeout_s: float
) -> Mapping[str, Any] | None:
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.connect()
        require_own_listener(host, port, "The cluster's token")
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        body = answer.read(MAX_BYTES + 1)
        raw = loads(body) if answer.status == 200 else None
    except (CockpitError, OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return raw if isinstance(raw, dict) else None
