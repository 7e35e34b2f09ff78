"""What the operator decides, from the states of the hosts alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from cockpit.backends.local.spec import GRACE_S, GroupSpec
from cockpit.backends.ssh import fleet
from cockpit.backends.ssh import operator as module
from cockpit.backends.ssh.description import Host, parse
from cockpit.backends.ssh.operator import (
    LOST_AFTER_S,
    End,
    Operator,
    Start,
    plan,
    pods_given_up,
)
from cockpit.backends.ssh.state import ClusterRecord, HostState, PodState, Token, host_state
from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.error import UnreachableError

HOSTS = parse(
    '[[host]]\nname = "head"\naddress = "10.0.0.1"\nhead = true\n'
    + "".join(
        f'[[host]]\nname = "{name}"\naddress = "10.0.0.{number}"\n'
        for number, name in enumerate(("a", "b", "c"), start=2)
    ),
    Path("/hosts.toml"),
)
HEAD, A, B, C = HOSTS.hosts
NOW = 1000.0
NOBODY = HostState()


def wanted(replicas: int) -> ClusterRecord:
    return ClusterRecord("c", "u", 0.0, (GroupSpec("workers", replicas, 0, 3),), "fast")


def pod(host: Host, *, head: str = "h", created_s: float = 0.0) -> PodState:
    name = f"{host.name}-aaaaa"
    uid = head if host is HEAD else name
    shown = Pod(
        name, host.group, NodeType.WORKER, PodPhase.PENDING, False, created_s=created_s, uid=uid
    )
    return PodState(shown, head, False, True, 1.0, False, None, "")


def running(*pods: PodState) -> dict[str, HostState]:
    states = {host.name: NOBODY for host in HOSTS.hosts}
    for each in pods:
        states[each.pod.name.partition("-")[0]] = HostState(pods=(each,))
    return states


def over(host: Host, ended_s: float) -> PodState:
    return replace(pod(host), over=True, ended_s=ended_s)


def decided(
    cluster: ClusterRecord,
    states: dict[str, HostState],
    lost: dict[str, float] | None = None,
    waits_s: dict[str, float] | None = None,
) -> list[Start | End]:
    return plan(HOSTS, cluster, states, lost or {}, waits_s or {}, NOW)


def test_head_is_started_alone_and_first() -> None:
    assert decided(wanted(2), running()) == [Start(HEAD, "")]


def test_missing_workers_are_started_on_the_hosts_used_least_recently() -> None:
    states = running(pod(HEAD), over(A, 900.0), over(B, 800.0))
    assert decided(wanted(2), states) == [Start(C, "h"), Start(B, "h")]


def test_nothing_is_done_when_all_is_as_wanted() -> None:
    assert decided(wanted(2), running(pod(HEAD), pod(A), pod(B))) == []


def test_host_whose_pods_fail_waits() -> None:
    states = running(pod(HEAD), pod(A), pod(B))
    assert decided(wanted(3), states, waits_s={"c": NOW + 1}) == []
    assert decided(wanted(3), states, waits_s={"c": NOW}) == [Start(C, "h")]


def test_newest_pod_is_ended_when_there_are_too_many() -> None:
    newest = pod(B, created_s=5.0)
    states = running(pod(HEAD), pod(A), newest, pod(C))
    assert decided(wanted(2), states) == [End(B, newest, 30.0)]


def test_terminating_pod_counts_first_when_there_are_too_many() -> None:
    going = replace(pod(A), terminating=True)
    assert decided(wanted(1), running(pod(HEAD), going, pod(B, created_s=5.0))) == []


def test_workers_of_an_earlier_head_are_ended() -> None:
    old = pod(A, head="before")
    assert decided(wanted(1), running(pod(HEAD), old)) == [End(A, old, 0.0)]


def test_lost_host_keeps_its_place_for_a_while_and_then_a_spare_takes_it() -> None:
    states = running(pod(HEAD), pod(A))
    assert decided(wanted(1), states, {"a": NOW - LOST_AFTER_S + 1}) == []
    assert decided(wanted(1), states, {"a": NOW - LOST_AFTER_S}) == [Start(B, "h")]


def test_pod_of_a_lost_host_that_returns_is_the_one_too_many() -> None:
    before, after = pod(A), pod(B, created_s=5.0)
    since = {"a": NOW - LOST_AFTER_S}
    given_up = {*pods_given_up(running(pod(HEAD), before), since, NOW)}
    assert given_up == {before.pod.uid}
    assert not [*pods_given_up(running(pod(HEAD), before), since, NOW - 1)]
    returned = running(pod(HEAD), before, after)
    assert plan(HOSTS, wanted(1), returned, {}, {}, NOW, given_up) == [End(A, before, 0.0)]
    assert plan(HOSTS, wanted(2), returned, {}, {}, NOW, given_up) == []


def test_nothing_is_decided_while_the_head_s_host_is_lost() -> None:
    assert decided(wanted(3), running(pod(HEAD)), {"head": NOW}) == []


async def test_outage_of_this_computer_s_network_ends_no_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The head and a spare are reached again before a host whose rank has trained all the time."""
    steps: list[Start | End] = []

    async def do(cluster: ClusterRecord, step: Start | End) -> bool:
        steps.append(step)
        return True

    for each in (module, fleet):
        monkeypatch.setattr(each, "server_time", lambda: NOW)
    operator = Operator(HOSTS)
    monkeypatch.setattr(operator, "_do", do)
    hosts = operator._fleet
    hosts.states = running(pod(HEAD), pod(A))
    hosts.lost_s = {"head": NOW - 600, "a": NOW - 600}
    await operator._reconcile(wanted(1))
    del hosts.lost_s["head"]
    hosts.restart_absences()
    await operator._reconcile(wanted(1))
    del hosts.lost_s["a"]
    await operator._reconcile(wanted(1))
    assert steps == []
    await operator._reconcile(wanted(0))
    assert steps == [End(A, pod(A), GRACE_S)], "it was not given up"
    await hosts.aclose()


CLAIMED = {
    "name": "a-x1abc", "group": "head\x1b[2J", "node_type": "head", "phase": "Running",
    "ready": True, "ip": "10.0.0.9", "host": "b\x1b]0;x\x07",
}  # fmt: skip
STATE = {
    "pod": CLAIMED, "head_uid": "u", "over": False, "shown": True, "started_s": 1.0,
    "terminating": False, "ended_s": None, "reason": "",
}  # fmt: skip
HOST = Host("a", "10.0.0.2", "a", "workers")


@pytest.mark.parametrize("time_s", [1e300, -1e300, float("nan"), float("inf")])
def test_state_with_a_time_that_has_no_date_is_refused(time_s: float) -> None:
    for odd in (
        STATE | {"started_s": time_s},
        STATE | {"ended_s": time_s},
        STATE | {"pod": CLAIMED | {"created_s": time_s}},
        STATE | {"pod": CLAIMED | {"ended_s": time_s}},
    ):
        with pytest.raises(UnreachableError, match="The state of host a is not understood"):
            host_state({"pods": [odd]}, HOST)
    cluster = to_builtins(replace(wanted(1), created_s=time_s))
    with pytest.raises(UnreachableError, match="The state of host a is not understood"):
        host_state({"cluster": cluster}, HOST)


def test_an_agent_cannot_claim_to_be_another_host() -> None:
    [found] = host_state({"pods": [STATE]}, HOST).pods
    pod = found.pod
    assert (pod.group, pod.node_type.value, pod.ip, pod.host) == (
        "workers",
        "worker",
        "10.0.0.2",
        "a",
    )


class Lock:
    """The call of the agent that holds the lock, and its streams."""

    def __init__(self) -> None:
        self.stdin = self.stdout = self
        self.returncode: int | None = None
        self.renewals = 0
        self.is_renewed = asyncio.Event()

    async def readline(self) -> bytes:
        return b"{}\n"

    def write(self, data: bytes) -> None:
        self.renewals += 1
        if self.renewals == 3:
            self.is_renewed.set()


async def test_lock_is_renewed_while_a_host_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, operator = Lock(), Operator(HOSTS)
    fleet = operator._fleet

    async def agent(host: Host) -> SimpleNamespace:
        connection = SimpleNamespace(start=started, lost=lambda: UnreachableError("lost"))
        return SimpleNamespace(
            connection=connection, argv=lambda *of: [], read=lambda line: {}, ask_for=token
        )

    async def started(argv: list[str]) -> Lock:
        return lock

    async def token(*of: object) -> Token:
        return Token("t")

    async def state(host: Host) -> HostState:
        return HostState(cluster=wanted(0))

    async def reconcile(cluster: ClusterRecord) -> None:
        await lock.is_renewed.wait()
        lock.returncode = 0

    async def end(process: Lock) -> None:
        pass

    monkeypatch.setattr(module, "RENEW_S", 0.01)
    monkeypatch.setattr(module, "end", end)
    monkeypatch.setattr(fleet, "agent", agent)
    monkeypatch.setattr(fleet, "state", state)
    monkeypatch.setattr(operator, "_reconcile", reconcile)
    fleet.states[HEAD.name] = HostState(cluster=wanted(0))
    fleet.lost_s["a"] = 1.0
    fleet.changed.set()
    try:
        async with asyncio.timeout(5):
            with pytest.raises(UnreachableError, match="lost"):
                await operator._lead()
        assert fleet.lost_s["a"] > 1.0, "counted from when the cluster is kept"
        renewals = lock.renewals
        await asyncio.sleep(0.05)
        assert lock.renewals == renewals
    finally:
        await fleet.aclose()
