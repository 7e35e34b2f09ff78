"""A cluster on hosts behind the Protocol that every kind of cluster answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from cockpit.backends.local.spec import GRACE_S, scaled_group
from cockpit.backends.protocol import VERBS, ExecResult, Scaled, Terminal
from cockpit.backends.ssh import terminal
from cockpit.backends.ssh.agent.streams import REFUSED
from cockpit.backends.ssh.calls import Agent
from cockpit.backends.ssh.connection import end
from cockpit.backends.ssh.description import Hosts
from cockpit.backends.ssh.fleet import Fleet
from cockpit.backends.ssh.node import at, client_environment
from cockpit.backends.ssh.state import ClusterRecord, HostState, Token
from cockpit.backends.ssh.watch import NO_CLUSTER, NO_OPERATOR, watch_hosts
from cockpit.backends.without_kubernetes import WithoutKubernetes
from cockpit.model.cluster import Capability, ClusterRef, DashboardRoute
from cockpit.model.error import (
    ChangedError,
    CockpitError,
    ReplacedError,
    UnreachableError,
    UsageError,
)
from cockpit.model.event import Event
from cockpit.model.scale import ScaleRequest
from cockpit.model.secret import sendable
from cockpit.model.text import clean, one_line
from cockpit.sources.ray.dashboard import Dashboard

CONFLICTS = 5


class SshBackend(WithoutKubernetes):
    """The cluster that the description names; whether it is up is checked each time."""

    WHY = "this cluster is on hosts, not on Kubernetes"

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._fleet: Fleet | None = None
        self._route: tuple[Agent, DashboardRoute] | None = None
        self._routing = asyncio.Lock()

    @property
    def ref(self) -> ClusterRef:
        return ClusterRef(backend="ssh", name=self._hosts.cluster, context=self._hosts.path)

    @property
    def fleet(self) -> Fleet:
        self._fleet = self._fleet or Fleet(self._hosts)
        return self._fleet

    async def watch(self) -> AsyncGenerator[Event, None]:
        async with (
            Dashboard(self.dashboard) as dashboard,
            aclosing(watch_hosts(self.ref, self.fleet, dashboard)) as events,
        ):
            async for event in events:
                yield event

    async def scale(self, request: ScaleRequest) -> Scaled:
        """Pods to remove are deleted first: they hold their places while they end."""
        for _ in range(CONFLICTS):
            cluster, state = await self._cluster()
            if not state.operator:
                raise UnreachableError("The cluster cannot be scaled.", NO_OPERATOR)
            if request.uid and request.uid != cluster.uid:
                raise ReplacedError("Cluster", cluster.name)
            group = cluster.group(request.group)
            if request.expected is not None and group.desired != request.expected:
                raise ChangedError(group.name, group.desired, request.expected)
            scaled, warning = scaled_group(group, request)
            here = len(self._hosts.of_group(group.name))
            if scaled.desired > here:
                scaled = replace(scaled, replicas=here)
                warning = f"{warning} The group has {here} hosts.".strip()
            uids = request.remove_uids or [""] * len(request.remove)
            for pod, uid in zip(request.remove, uids, strict=True):
                if self._hosts.of_pod(pod).group != group.name:
                    raise UsageError(f"Pod {one_line(pod)} is not of group {group.name}.")
                await self.delete_pod(pod, uid=uid, grace_s=GRACE_S)
            agent = await self.fleet.agent(self._hosts.head)
            changed = cluster.with_group(scaled)
            answer = await agent.ask(
                "change", {"revision": cluster.revision, "cluster": to_builtins(changed)}
            )
            if not answer.get("conflict"):
                return Scaled(group.name, group.desired, scaled.desired, warning)
            request = replace(request, remove=(), remove_uids=())
        raise CockpitError(
            f"Group {one_line(request.group)} was not scaled.", "Others change the cluster too."
        )

    async def delete_pod(self, pod: str, *, uid: str, grace_s: float) -> None:
        agent = await self._agent_of(pod)
        await agent.ask("delete", {"pod": pod, "uid": uid, "grace_s": grace_s})

    async def exec(self, pod: str, argv: Sequence[str], *, uid: str = "") -> ExecResult:
        """Runs with the pod's environment and in its directory; ends with it, or with us."""
        agent, request = await self._in_pod(pod, argv, uid)
        process = await agent.connection.run(agent.argv("exec", request))
        if process.exit_code == REFUSED and process.stdout.startswith('{"error"'):
            agent.read(process.stdout)
        return process

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        agent, request = await self._in_pod(pod, argv, "")
        return await terminal.attach(
            agent.connection, agent.argv("attach", request), tty=tty, rows=rows, columns=columns
        )

    async def logs(
        self, pod: str, *, follow: bool, lines: int = 1000, previous: bool = False
    ) -> AsyncGenerator[str, None]:
        if previous:
            self._refuse("A pod on a host is not restarted, so it has no previous log.")
        agent = await self._agent_of(pod)
        request = {"pod": pod, "follow": follow, "lines": lines}
        process = await agent.connection.start(agent.argv("logs", request))
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                text = line.decode(errors="replace").rstrip("\n")
                if text.startswith('{"error"'):
                    agent.read(text)
                yield clean(text)
        except ValueError as error:
            raise UnreachableError(f"A line of the log of {pod} is too long.") from error
        finally:
            await end(process)

    async def dashboard(self) -> DashboardRoute:
        """By a forward to a private socket, made while the head's pod runs."""
        async with self._routing:
            agent = await self.fleet.agent(self._hosts.head)
            if self._route is None or self._route[0] is not agent:
                self._route = (agent, await self._new_route(agent))
            return self._route[1]

    async def _new_route(self, agent: Agent) -> DashboardRoute:
        cluster, state = await self._cluster()
        head = state.living
        if head is None or not head.started:
            raise UnreachableError(
                f"The head of cluster {cluster.name} is not up.",
                "Its pod starts." if head else "No pod runs on its host.",
                "Wait for it; see: cockpit pods",
            )
        address, port = self._hosts.head.address, cluster.ports[1]
        answer = await agent.ask_for(Token, "token", {})
        token = sendable(answer.token, "The cluster's token")
        return DashboardRoute(
            f"http://{at(address, port)}",
            {"Authorization": f"Bearer {token}"},
            socket_path=await agent.connection.forward("dashboard", address, port),
            via="ssh",
        )

    async def capabilities(self) -> Mapping[str, Capability]:
        able = dict.fromkeys(VERBS, Capability(True)) | self.refused()
        try:
            state = await self.fleet.state(self._hosts.head)
        except CockpitError as error:
            return dict.fromkeys(VERBS, Capability(False, one_line(error.what)))
        if state.cluster is None:
            return dict.fromkeys(VERBS, Capability(False, NO_CLUSTER))
        if not state.operator:
            able |= dict.fromkeys(("scale", "delete_pod"), Capability(False, NO_OPERATOR))
        if state.living is None:
            able["launch"] = Capability(False, "its head is not up")
        return able

    async def aclose(self) -> None:
        fleet, self._fleet = self._fleet, None
        if fleet is not None:
            await fleet.aclose()

    async def _cluster(self) -> tuple[ClusterRecord, HostState]:
        state = await self.fleet.state(self._hosts.head)
        if state.cluster is None:
            raise UnreachableError(
                f"There is no cluster {self._hosts.cluster!r} on these hosts.",
                f"Its head would be on {self._hosts.head.name}.",
                f"Start it with: cockpit up --on hosts {self._hosts.path}",
            )
        return state.cluster, state

    async def _agent_of(self, pod: str) -> Agent:
        return await self.fleet.agent(self._hosts.of_pod(pod))

    async def _in_pod(
        self, pod: str, argv: Sequence[str], uid: str
    ) -> tuple[Agent, dict[str, Any]]:
        if not argv:
            raise UsageError("There is nothing to execute.", todo="Give a command after --.")
        agent = await self._agent_of(pod)
        cluster, _ = await self._cluster()
        environment = client_environment(self._hosts, cluster)
        return agent, {"pod": pod, "uid": uid, "argv": list(argv), "env": environment}
