"""A local cluster behind the Protocol that every kind of cluster answers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from cockpit.backends.local.address import require_own_listener
from cockpit.backends.local.files import ClusterFiles, RunFiles
from cockpit.backends.local.pods import pod_logs
from cockpit.backends.local.pods.process import environment_of
from cockpit.backends.local.pods.ray_start import client_environment
from cockpit.backends.local.requests import ask
from cockpit.backends.local.spec import ClusterSpec, check_name
from cockpit.backends.local.state import LocalCluster, PodStatus, read_cluster
from cockpit.backends.local.watch import watch_cluster
from cockpit.backends.protocol import VERBS, ExecResult, Scaled
from cockpit.backends.without_kubernetes import WithoutShell
from cockpit.model.cluster import Capability, ClusterRef, DashboardRoute
from cockpit.model.error import ReplacedError, UnreachableError, UsageError
from cockpit.model.event import Event
from cockpit.model.scale import ScaleRequest
from cockpit.model.secret import sendable

CONNECT_TIMEOUT_S = 10.0
"""Loopback refuses at once; a connection takes longer only while the CPUs are overloaded."""


class LocalBackend(WithoutShell):
    """The local cluster of this name; whether it is up is checked each time."""

    WHY = "a local cluster is not on Kubernetes"

    def __init__(self, name: str) -> None:
        self._name = check_name(name)

    @property
    def ref(self) -> ClusterRef:
        return ClusterRef(backend="local", name=self._name)

    def watch(self) -> AsyncIterator[Event]:
        return watch_cluster(self.ref)

    async def scale(self, request: ScaleRequest) -> Scaled:
        self._require_uid(request.uid)
        answer = await self._ask({"verb": "scale"} | to_builtins(request))
        return Scaled(request.group, answer["before"], answer["after"], answer["warning"])

    async def delete_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        await self._ask({"verb": "delete_pod", "pod": pod, "uid": uid, "grace_s": grace_s})

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        """Runs with the pod's environment and in its directory, and ends with the pod."""
        if not argv:
            raise UsageError("There is nothing to execute.", todo="Give a command after --.")
        spec, item = self._pod(pod)
        if uid and item.pod.uid != uid:
            raise ReplacedError("Pod", pod)
        environment = environment_of(item.process) if item.process else None
        if not environment:
            raise UsageError(f"Pod {pod} has no processes.", item.pod.reason)
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                env=environment | client_environment(spec),
                cwd=RunFiles.of(spec.uid).pod(pod),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            # A shell's codes for a command that is not there, or cannot be run.
            code = 127 if isinstance(error, FileNotFoundError) else 126
            return ExecResult(code, "", f"{argv[0]}: {error.strerror}")
        try:
            out, err = await child.communicate()
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
        assert child.returncode is not None
        return ExecResult(
            child.returncode, out.decode(errors="replace"), err.decode(errors="replace")
        )

    def logs(
        self, pod: str, *, follow: bool, lines: int = 1000, previous: bool = False
    ) -> AsyncIterator[str]:
        if previous:
            self._refuse("A local pod is not restarted, so it has no previous log.")
        spec, _ = self._pod(pod)
        paths = pod_logs.paths(
            ClusterFiles.of(self._name).pod_log(pod), RunFiles.of(spec.uid).pod(pod)
        )
        return pod_logs.read(paths, follow=follow, lines=lines, is_there=lambda: self._has(pod))

    async def dashboard(self) -> DashboardRoute:
        cluster = self._cluster()
        head = cluster.head
        if head is None or not head.ready:
            state = f"{head.phase.value}, {head.reason}" if head else "not there"
            raise UnreachableError(
                f"The head of local cluster {self._name} is not up.",
                f"It is {state.rstrip(', ')}.",
                self._todo(cluster),
            )
        spec = cluster.spec
        assert spec is not None

        def check_peer() -> None:
            require_own_listener(
                spec.head_ip, spec.dashboard_port, f"The token of local cluster {self._name}"
            )

        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, writer = await asyncio.open_connection(spec.head_ip, spec.dashboard_port)
            writer.close()
            token = sendable(
                cluster.token_path.read_text(encoding="utf-8"), str(cluster.token_path)
            )
        except (OSError, TimeoutError) as error:
            raise UnreachableError(
                f"The dashboard of local cluster {self._name} does not answer at "
                f"{cluster.dashboard_url}.",
                f"{type(error).__name__}: {error}",
                self._todo(cluster),
            ) from error
        check_peer()
        headers = {"Authorization": f"Bearer {token}"}
        # Checked again on each connection: the head may end while a client keeps the route.
        return DashboardRoute(cluster.dashboard_url, headers, check_peer=check_peer)

    async def capabilities(self) -> Mapping[str, Capability]:
        cluster = read_cluster(self._name)
        if cluster is None:
            return dict.fromkeys(VERBS, Capability(False, f"there is no cluster {self._name}"))
        able = dict.fromkeys(VERBS, Capability(True)) | self.refused()
        if not cluster.operator_alive:
            able |= dict.fromkeys(
                ("scale", "delete_pod"), Capability(False, "its operator is not running")
            )
        if cluster.head is None or not cluster.head.ready:
            able["launch"] = Capability(False, "its head is not ready")
        return able

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        cluster = self._cluster()
        if not cluster.operator_alive or cluster.spec is None:
            raise UnreachableError(
                f"Local cluster {self._name} cannot be changed.",
                "Its operator is not running.",
                self._todo(cluster),
            )
        return await ask(self._name, RunFiles.of(cluster.spec.uid).socket, request)

    def _require_uid(self, uid: str) -> None:
        """Raises ReplacedError where another cluster has the name since the plan was shown."""
        spec = self._cluster().spec
        if uid and spec is not None and spec.uid != uid:
            raise ReplacedError("Local cluster", self._name)

    def _cluster(self) -> LocalCluster:
        if (cluster := read_cluster(self._name)) is None:
            raise UnreachableError(
                f"There is no local cluster {self._name!r}.",
                todo=f"Start it with: cockpit local up {self._name}",
            )
        return cluster

    def _pod(self, name: str) -> tuple[ClusterSpec, PodStatus]:
        cluster = self._cluster()
        items = cluster.status.pods if cluster.status else ()
        for item in items:
            if item.pod.name == name and cluster.spec is not None:
                return cluster.spec, item
        names = ", ".join(item.pod.name for item in items) or "none"
        raise UsageError(
            f"There is no pod {name!r} in local cluster {self._name}.", f"Pods: {names}."
        )

    def _has(self, pod: str) -> bool:
        cluster = read_cluster(self._name)
        return cluster is not None and any(item.name == pod for item in cluster.pods)

    def _todo(self, cluster: LocalCluster) -> str:
        if cluster.operator_alive:
            return "Wait for it; see: cockpit local status"
        return f"Remove it and create it again: cockpit local down {self._name}"
