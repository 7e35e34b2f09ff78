"""The hosts of a cluster: a connection and an agent each, and their states as they change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager

from cockpit.backends.private_folder import PrivateFolder
from cockpit.backends.ssh.calls import Agent
from cockpit.backends.ssh.connection import Connection
from cockpit.backends.ssh.description import Host, Hosts
from cockpit.backends.ssh.state import HostState, host_state
from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError
from cockpit.sources.polling.backoff import Backoff
from cockpit.sources.polling.pause import pause

AT_ONCE = 16
"""Connections that are being made at the same time: each costs a key exchange on this host."""
TURN_S = 0.5
"""A connection that takes longer waits for its host, so that another may be made."""


class SlowStart:
    """Turns that are taken at the same time: one at first, one more after each, up to `most`.

    The first host is connected at once, and a UI that starts keeps most of its processor.
    """

    def __init__(self, most: int) -> None:
        self._most, self._allowed = most, 1
        self._free = asyncio.Semaphore(1)

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None, None]:
        """A turn ends after TURN_S, even if the block has not."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        timer = loop.call_later(TURN_S, self._ended)
        try:
            yield
        finally:
            if timer.when() > loop.time():  # otherwise the loop ends it
                timer.cancel()
                self._ended()

    def _ended(self) -> None:
        self._free.release()
        if self._allowed < self._most:
            self._allowed += 1
            self._free.release()


class Fleet:
    """Belongs to the event loop of its first call. End it with `aclose`."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.states: dict[str, HostState] = {}
        self.errors: dict[str, CockpitError] = {}
        """Of hosts that cannot be reached now; their last states remain in `states`."""
        self.lost_s: dict[str, float] = {}
        """Since when."""
        self.changed = asyncio.Event()
        self._folder = PrivateFolder()
        self._agents: dict[str, Agent] = {}
        self._locks = {host.name: asyncio.Lock() for host in hosts.hosts}
        self._connecting = SlowStart(AT_ONCE)
        self._followers: list[asyncio.Task[None]] = []

    async def agent(self, host: Host) -> Agent:
        """The agent of the host, connected. Raises CockpitError."""
        async with self._locks[host.name]:
            agent = self._agents.get(host.name)
            if agent is None or not agent.connection.is_open:
                if agent is not None:
                    await agent.connection.aclose()
                number = self.hosts.hosts.index(host)
                connection = Connection(
                    host, self._folder.path, f"h{number}", self.hosts.ssh_config
                )
                async with self._connecting.turn():
                    await connection.open()
                agent = self._agents[host.name] = Agent(connection, self.hosts.cluster)
            return agent

    async def state(self, host: Host) -> HostState:
        """The state of one host, asked once."""
        agent = await self.agent(host)
        return host_state(await agent.ask("status", {"follow": False}), host)

    def follow(self) -> None:
        """Keep `states` and `errors`, and set `changed` with each change, until it is closed."""
        if not self._followers:
            head_first = sorted(self.hosts.hosts, key=lambda host: not host.is_head)
            self._followers = [asyncio.create_task(self._follow(host)) for host in head_first]

    @property
    def is_complete(self) -> bool:
        """Whether every host has answered, or failed to."""
        return len(self.states.keys() | self.errors.keys()) == len(self.hosts.hosts)

    @property
    def reachable(self) -> Sequence[Host]:
        return [h for h in self.hosts.hosts if h.name in self.states and h.name not in self.errors]

    def restart_absences(self) -> None:
        """Count from now for how long hosts were not reached.

        While the head was not reached either, it may have been the network of this computer: the
        hosts that connect again after the head may be well.
        """
        self.lost_s = dict.fromkeys(self.lost_s, server_time())

    async def aclose(self) -> None:
        for task in self._followers:
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        self._followers = []
        await asyncio.gather(*(agent.connection.aclose() for agent in self._agents.values()))
        self._agents.clear()
        await asyncio.to_thread(self._folder.remove)

    async def _follow(self, host: Host) -> None:
        backoff = Backoff()
        while True:
            try:
                agent = await self.agent(host)
                async with aclosing(agent.states()) as states:
                    async for raw in states:
                        self.states[host.name] = host_state(raw, host)
                        self.errors.pop(host.name, None)
                        self.lost_s.pop(host.name, None)
                        backoff.worked()
                        self.changed.set()
            except CockpitError as error:
                self.errors[host.name] = error
                self.lost_s.setdefault(host.name, server_time())
                self.changed.set()
            await pause(backoff.failed())
