"""The operator of a cluster on hosts: a process that reconciles it with its record.

It connects to all hosts and does what KubeRay's operator does on Kubernetes:

- A pod that ends is replaced at once, on the host of its group that was used least recently: on a
  spare, if there is one. Pods that end before they are ready delay the next one on their host.
- A group with too many pods loses the newest, with Ray's grace period.
- When the head was started again, every worker of the one before is ended and started again: a GCS
  without external storage knows none of them.
- A host that is unreachable for LOST_AFTER_S counts as lost, and a spare takes its place. If it
  returns, its pod is the one too many: ranks may run in the other, and Ray's head has usually
  declared the one that was lost dead.

What it decides depends on the states of the hosts, so that it can end and start again at any time:
all that it forgets is which pods were lost. One operator at a time holds a lock on the head's
host, which it renews over its connection. When the record is removed, it ends. A restart of the
head's host may remove the record with all files in /tmp: then the operator writes it again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct, to_builtins

from cockpit.backends.local.spec import GRACE_S
from cockpit.backends.ssh.connection import end
from cockpit.backends.ssh.description import Host, Hosts, read
from cockpit.backends.ssh.fleet import Fleet
from cockpit.backends.ssh.node import start_request
from cockpit.backends.ssh.state import ClusterRecord, HostState, PodState, Token
from cockpit.format import in_seconds
from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError

LOST_AFTER_S = 30.0
TICK_S = 1.0
BACKOFF_MAX_S = 60.0
SHORT_LIFE_S = 30.0
"""A pod that ended sooner failed to start."""
RETRY_S = 5.0
RENEW_S = 5.0
"""Of the lock: often enough for the agent's LEASE_S."""


class Start(Struct, frozen=True):
    host: Host
    head_uid: str


class End(Struct, frozen=True):
    host: Host
    pod: PodState
    grace_s: float


def plan(
    hosts: Hosts,
    cluster: ClusterRecord,
    states: dict[str, HostState],
    lost: dict[str, float],
    waits_s: dict[str, float],
    now: float,
    given_up: Collection[str] = (),
) -> list[Start | End]:
    """What is to be done now. `lost`: since when a host has not been reached; `waits_s`: until
    when nothing is started on a host; `given_up`: see `pods_given_up`.
    """

    def may_start(host: Host) -> bool:
        return waits_s.get(host.name, 0.0) <= now

    head = states[hosts.head.name].living
    if hosts.head.name in lost:
        return []
    if head is None:
        return [Start(hosts.head, "")] if may_start(hosts.head) else []
    steps: list[Start | End] = []
    for group in cluster.groups:
        there = hosts.of_group(group.name)
        reached = [host for host in there if host.name in states and host.name not in lost]
        living = [(host, pod) for host in reached if (pod := states[host.name].living) is not None]
        old = [(h, pod) for h, pod in living if pod.head_uid != head.pod.uid]
        steps += [End(host, pod, 0.0) for host, pod in old]
        # A host that is not reached keeps its place for a while: its pod may be well.
        kept = sum(
            states[host.name].living is not None and now - lost[host.name] < LOST_AFTER_S
            for host in there
            if host.name in lost and host.name in states
        )
        missing = group.desired - len(living) - kept
        free = [host for host in reached if states[host.name].living is None]
        free.sort(key=lambda host: _last_used(states[host.name]))
        able = list(filter(may_start, free))
        steps += [Start(host, head.pod.uid) for host in able[: max(0, missing)]]
        steps += _surplus(living, -missing, given_up)
    return steps


def pods_given_up(
    states: dict[str, HostState], lost: dict[str, float], now: float
) -> Iterator[str]:
    """The UIDs of pods whose place a spare has taken, or would take."""
    for name, since_s in lost.items():
        pod = states[name].living if name in states else None
        if pod is not None and now - since_s >= LOST_AFTER_S:
            yield pod.pod.uid


def _surplus(
    living: Sequence[tuple[Host, PodState]], excess: int, given_up: Collection[str]
) -> list[Start | End]:
    """Terminating pods first; then those that were given up; then the newest."""
    going = sum(pod.terminating for _, pod in living)
    staying = [(host, pod) for host, pod in living if not pod.terminating]
    staying.sort(key=lambda one: (one[1].pod.uid in given_up, one[1].pod.created_s), reverse=True)
    return [
        End(host, pod, 0.0 if pod.pod.uid in given_up else GRACE_S)
        for host, pod in staying[: max(0, excess - going)]
    ]


def _last_used(state: HostState) -> float:
    return max((pod.ended_s or 0.0 for pod in state.pods), default=0.0)


class Operator:
    def __init__(self, hosts: Hosts) -> None:
        self._hosts, self._fleet = hosts, Fleet(hosts)
        self._token = ""
        self._known: tuple[ClusterRecord, str] | None = None
        """The record, and the boot of the head's host at which it was there."""
        self._failures: dict[str, int] = {}
        self._waits_s: dict[str, float] = {}
        self._counted: set[str] = set()
        self._given_up: set[str] = set()
        self._trouble = ""

    async def run(self) -> None:
        """Until the cluster's record has been removed."""
        try:
            self._fleet.follow()
            while not self._is_removed:
                try:
                    await self._lead()
                except CockpitError as error:
                    if str(error) != self._trouble:
                        self._trouble = str(error)
                        log(self._trouble)
                    await asyncio.sleep(RETRY_S)
            log("The cluster's record was removed.")
        finally:
            await self._fleet.aclose()

    @property
    def _is_removed(self) -> bool:
        head = self._hosts.head.name
        state = self._fleet.states.get(head)
        if state is None or state.cluster is not None or head in self._fleet.errors:
            return False
        return self._known is None or state.host.boot == self._known[1]

    async def _restore(self) -> None:
        """Write the record again if the head's host has lost it with a restart."""
        state = await self._fleet.state(self._hosts.head)
        if state.cluster is None and self._known and state.host.boot != self._known[1]:
            agent = await self._fleet.agent(self._hosts.head)
            request = {"cluster": to_builtins(self._known[0])}
            await agent.ask("init", request, secret=self._token)
            log(f"Host {self._hosts.head.name} was restarted: the cluster's record is there again.")

    async def _lead(self) -> None:
        """Keep the cluster while the lock is held. Raises CockpitError when it is not."""
        await self._restore()
        agent = await self._fleet.agent(self._hosts.head)
        lock = await agent.connection.start(agent.argv("lead", {}))
        try:
            assert lock.stdout is not None
            assert lock.stdin is not None
            line = await lock.stdout.readline()
            if not line:
                raise agent.connection.lost()
            agent.read(line)
            self._trouble = ""
            self._token = self._token or (await agent.ask_for(Token, "token", {})).token
            log("Keeps the cluster.")
            self._fleet.restart_absences()
            renewal = asyncio.create_task(_renew(lock.stdin))
            try:
                while lock.returncode is None and not self._is_removed:
                    state = (await self._states()).get(self._hosts.head.name)
                    if state is not None and state.cluster is not None:
                        self._known = (state.cluster, state.host.boot)
                        await self._reconcile(state.cluster)
            finally:
                renewal.cancel()
            if not self._is_removed:
                raise agent.connection.lost()
        finally:
            await end(lock)

    async def _states(self) -> dict[str, HostState]:
        """The states of the hosts, after the next change or tick."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TICK_S):
                await self._fleet.changed.wait()
        self._fleet.changed.clear()
        while self._hosts.head.name not in self._fleet.states | self._fleet.errors:
            await self._fleet.changed.wait()
            self._fleet.changed.clear()
        return self._fleet.states

    async def _reconcile(self, cluster: ClusterRecord) -> None:
        self._count_failures()
        states, lost_s, now = self._fleet.states, self._fleet.lost_s, server_time()
        if self._hosts.head.name not in lost_s:  # else no spare takes a place
            self._given_up.update(pods_given_up(states, lost_s, now))
        steps = plan(self._hosts, cluster, states, lost_s, self._waits_s, now, self._given_up)
        # At the same time, and not again before the hosts have answered.
        done = await asyncio.gather(*(self._do(cluster, step) for step in steps))
        if not all(done):
            await asyncio.sleep(TICK_S)

    def _count_failures(self) -> None:
        for name, state in self._fleet.states.items():
            for pod in state.pods:
                if pod.over and pod.pod.uid not in self._counted:
                    self._counted.add(pod.pod.uid)
                    failed = self._failures.get(name, 0) + 1 if pod.life_s < SHORT_LIFE_S else 0
                    self._failures[name] = failed
                    wait_s = min(BACKOFF_MAX_S, 2.0 ** (failed - 1)) if failed else 0.0
                    self._waits_s[name] = server_time() + wait_s
                    log(f"Pod {pod.pod.name} has ended: {pod.reason}.")

    async def _do(self, cluster: ClusterRecord, step: Start | End) -> bool:
        try:
            agent = await self._fleet.agent(step.host)
            if isinstance(step, End):
                request = {
                    "pod": step.pod.pod.name,
                    "uid": step.pod.pod.uid,
                    "grace_s": step.grace_s,
                }
                await agent.ask("delete", request)
                log(f"Ends pod {step.pod.pod.name}, grace {in_seconds(step.grace_s)}.")
            else:
                start = start_request(self._hosts, cluster, step.host, step.head_uid)
                await agent.ask("start", start, secret=self._token)
                log(f"Starts pod {start['pod']['name']}.")
            self._fleet.states[step.host.name] = await self._fleet.state(step.host)
        except CockpitError as error:
            log(f"{step.host.name}: {error}")
            return False
        return True


async def _renew(lock: asyncio.StreamWriter) -> None:
    """Not by the loop that keeps the cluster: the end of a pod on a slow host takes longer."""
    while True:
        lock.write(b"\n")
        await asyncio.sleep(RENEW_S)


def log(text: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), " ".join(text.split()), flush=True)


def main(argv: list[str]) -> int:
    """`python -m cockpit.backends.ssh.operator FILE`."""
    os.umask(0o077)
    # A hang-up or an interrupt in the terminal that started the cluster must not end it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(Operator(read(argv[0])).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
