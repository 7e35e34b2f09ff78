"""Make the instances of a plan, and terminate exactly those that were made.

Both can be repeated after a crash at any point: see `cockpit.backends.lambda_cloud.state`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from cockpit.backends.lambda_cloud.api import (
    ALIVE,
    CLUSTER_TAG,
    IN_USE,
    NO_CAPACITY,
    NODE_TAG,
    QUOTA,
    Api,
    ApiError,
    Instance,
    Launch,
    Tag,
)
from cockpit.backends.lambda_cloud.description import Cloud
from cockpit.backends.lambda_cloud.plan import Plan, Planned, matched, money, no_capacity
from cockpit.backends.lambda_cloud.state import Node, State, Store
from cockpit.backends.private_folder import private_folder
from cockpit.backends.ssh.setup import NOFILE
from cockpit.format import in_seconds, plural
from cockpit.model.error import CockpitError, UnreachableError
from cockpit.model.text import one_line

Progress = Callable[[str], None]
LOOKS = 3
"""How often an instance is not in the list before it counts as not there: the list may lag."""
REPLACEMENTS = 2
"""Launches in place of instances that vanish or are unhealthy, in one `up`."""


class Removed(Struct, frozen=True):
    instances: int
    others: tuple[str, ...]
    """The SSH key and the ruleset, if they were made."""
    cents: float
    """What the cluster has cost."""


async def make(
    api: Api, cloud: Cloud, planned: Plan, store: Store, timeout_s: float, progress: Progress
) -> dict[str, Instance]:
    """Launch what is missing, and wait until all are active. Returns the instances by host."""
    record(cloud, planned, store)
    key, ruleset = await _key(api, planned, store), await _ruleset(api, cloud, store)
    launcher = _Launcher(api, cloud, store, key, ruleset, progress)
    deadline, shown = time.monotonic() + timeout_s, ""
    while True:
        running = await launcher.looked()
        waiting = []
        for node in planned.nodes:
            instance = running.get(node.wanted.name)
            if instance is None:
                await launcher.launch(node)
            if instance is None or not _is_ready(instance):
                status = one_line(instance.status) if instance else "launched"
                waiting.append(f"{node.wanted.name} is {status}")
        if not waiting:
            return running
        if time.monotonic() > deadline:
            raise CockpitError(
                f"The instances are not ready after {in_seconds(timeout_s, 0)}.",
                f"{', '.join(waiting)}; {_costs(store)}.",
                f"To continue, run up again; to end them: cockpit down --on lambda {cloud.path}",
            )
        if (line := f"Waiting: {', '.join(waiting)}.") != shown:
            progress(line)
            shown = line
        await asyncio.sleep(api.pace.poll_s)


def record(cloud: Cloud, planned: Plan, store: Store) -> None:
    """Record the cluster, before anything of it costs money."""
    state = store.state or State(
        cloud.cluster, cloud.path, planned.region, idle_since_s=time.time()
    )
    store.changed(
        replace(
            state,
            region=planned.region,
            file_system=cloud.file_system,
            spending=cloud.spending,
            api_key_file=cloud.api_key_file,
        )
    )


class _Launcher:
    """Launches, and compares the record with the account's list."""

    def __init__(
        self, api: Api, cloud: Cloud, store: Store, key: str, ruleset: str, progress: Progress
    ) -> None:
        self._api, self._cloud, self._store = api, cloud, store
        self._key, self._ruleset = key, ruleset
        self._progress = progress
        self._looks: dict[str, int] = {}
        self._replaced = 0

    @property
    def _state(self) -> State:
        assert self._store.state is not None
        return self._store.state

    async def looked(self) -> dict[str, Instance]:
        """The instances by host; what is found is recorded, and what ended is."""
        found = matched(self._state, await self._api.instances())
        running = {}
        for node in self._state.alive:
            instance = found.get(node.name)
            if instance is None:
                self._looks[node.name] = self._looks.get(node.name, 0) + 1
                if node.id and self._looks[node.name] >= LOOKS:
                    self._lost(node, "is no longer there")
                continue
            self._looks.pop(node.name, None)
            if node.id != instance.id:
                self._store.changed(self._state.with_node(replace(node, id=instance.id)))
            if instance.status == "unhealthy":
                await self._api.terminate([instance.id])
                self._lost(node, "is unhealthy, and was terminated")
            else:
                running[node.host] = instance
        return running

    def _lost(self, node: Node, why: str) -> None:
        self._store.changed(self._state.with_node(replace(node, ended_s=time.time())))
        self._progress(f"The instance of {node.host} {why}.")
        self._replaced += 1
        if self._replaced > REPLACEMENTS:
            raise CockpitError(
                f"{self._replaced} instances ended while they were started.",
                f"The last was that of {node.host}, which {why}; {_costs(self._store)}.",
                f"Run up again, or end all: cockpit down --on lambda {self._cloud.path}",
            )

    async def launch(self, planned: Planned) -> None:
        """Launch it, unless it was launched, and its result or its place in the list is awaited."""
        host = planned.wanted.name
        node = self._state.node(host)
        if node is None:
            number = sum(each.host == host for each in self._state.nodes)
            name = self._state.named(host if number == 0 else f"{host}-r{number}")
            node = Node(host, name, planned.wanted.type, planned.cents, ())
        if node.id or (node.since_s is not None and self._looks.get(node.name, 0) < LOOKS):
            return
        private, public = await asyncio.to_thread(_host_key)
        node = replace(node, host_keys=(*node.host_keys, public), since_s=time.time())
        self._store.changed(self._state.with_node(node))
        self._looks.pop(node.name, None)
        try:
            identifier = await self._api.launch(self._request(node, private))
        except ApiError as error:
            self._store.changed(self._state.with_node(replace(node, since_s=None)))
            raise self._explained(error, planned) from error
        except UnreachableError as error:
            self._progress(f"{error.what} ({error.why}): looking whether {host} was launched.")
            return
        self._store.changed(self._state.with_node(replace(node, id=identifier)))
        self._progress(f"Launched {host}: {node.type}, {money(node.cents)} an hour.")

    def _request(self, node: Node, private_host_key: str) -> Launch:
        cloud = self._cloud
        return Launch(
            self._state.region,
            node.type,
            (self._key,),
            node.name,
            node.name,
            (Tag(CLUSTER_TAG, cloud.cluster), Tag(NODE_TAG, node.name)),
            user_data(private_host_key, node.host_keys[-1]),
            (cloud.file_system,) if cloud.file_system else (),
            ({"id": self._ruleset},) if self._ruleset else (),
            {"family": cloud.image} if cloud.image else None,
        )

    def _explained(self, error: ApiError, planned: Planned) -> CockpitError:
        path = self._cloud.path
        if error.error_code == NO_CAPACITY:
            regions = [r for r in planned.offer.regions if r != self._state.region]
            full = no_capacity(self._cloud, {planned.wanted.type: regions})
            return CockpitError(full.what, f"{full.why} {_costs(self._store)}.", full.todo)
        if error.error_code == QUOTA:
            return CockpitError(
                f"The account's quota does not allow {planned.wanted.name}.",
                f"{error.why}; {_costs(self._store)}.",
                f"Ask Lambda for a higher quota, or: cockpit down --on lambda {path}",
            )
        return CockpitError(error.what, f"{error.why}; {_costs(self._store)}.", error.todo)


def user_data(private_host_key: str, public_host_key: str) -> str:
    """What cloud-init does at the first boot. JSON is YAML.

    The host key is made here, so that ssh knows it before the first connection.
    """
    limits = f"* soft nofile {NOFILE}\n* hard nofile {NOFILE}\n"
    wanted = {
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": private_host_key, "ed25519_public": public_host_key},
        "write_files": [{"path": "/etc/security/limits.d/90-cockpit.conf", "content": limits}],
        "runcmd": [["timedatectl", "set-ntp", "true"]],
    }
    return f"#cloud-config\n{json.dumps(wanted)}\n"


async def end(
    api: Api, store: Store, state: State, timeout_s: float, progress: Progress
) -> Removed:
    """Terminate the instances, remove the key and the ruleset, and prove it by the lists."""
    deadline = time.monotonic() + timeout_s
    # One that was never active, with an address, may not be in the list yet, even with an id.
    unclear = any(node.since_s is not None and not node.ip for node in state.alive)
    ended: set[str] = set()
    looks = 0
    while looks < (LOOKS if unclear else 1):
        left = [one for one in await api.instances() if _is_of(state, one)]
        alive = [one.id for one in left if one.status in ALIVE]
        if alive:
            await api.terminate(alive)
            ended.update(alive)
            progress(f"Terminating {plural(len(alive), 'instance')}.")
        looks = 0 if left else looks + 1
        if left and time.monotonic() > deadline:
            raise UnreachableError(
                f"{plural(len(left), 'instance')} did not end in {in_seconds(timeout_s, 0)}.",
                ", ".join(
                    f"{one_line(one.name or one.id)} is {one_line(one.status)}" for one in left
                ),
                f"They may cost money; try again: cockpit down --on lambda {state.description}",
            )
        if left or (looks < LOOKS and unclear):
            await asyncio.sleep(api.pace.poll_s)
    for node in state.alive:
        state = state.with_node(replace(node, ended_s=time.time()))
    store.changed(state)
    others = await _end_ruleset(api, state, deadline) + await _end_key(api, state)
    return Removed(len(ended), tuple(others), state.spent(time.time()))


async def _end_ruleset(api: Api, state: State, deadline: float) -> list[str]:
    removed: list[str] = []
    while found := [r.id for r in await api.rulesets() if r.name == state.ruleset != ""]:
        try:
            await api.delete("firewall-rulesets", found[0])
            removed = [f"firewall ruleset {state.ruleset}"]
        except ApiError as error:  # an instance that just ended may still use it
            if error.error_code != IN_USE or time.monotonic() > deadline:
                raise
            await asyncio.sleep(api.pace.poll_s)
    return removed


async def _end_key(api: Api, state: State) -> list[str]:
    removed: list[str] = []
    while found := [k.id for k in await api.ssh_keys() if k.name == state.ssh_key != ""]:
        await api.delete("ssh-keys", found[0])
        removed = [f"SSH key {state.ssh_key}"]
    return removed


def _is_of(state: State, instance: Instance) -> bool:
    """Whether it was launched for this cluster, and has not ended."""
    node = instance.tag.get(NODE_TAG, instance.name or "")
    ours = {name for each in state.nodes for name in (each.name, each.id) if name}
    return (instance.id in ours or node in ours) and instance.status not in (
        "terminated",
        "preempted",
    )


async def _key(api: Api, planned: Plan, store: Store) -> str:
    """The name of the account's key; it is added if there is none."""
    if planned.ssh_key:
        return planned.ssh_key
    assert store.state is not None
    name = store.state.named("key")
    store.changed(replace(store.state, ssh_key=name))
    await api.add_ssh_key(name, planned.public_key)
    return name


async def _ruleset(api: Api, cloud: Cloud, store: Store) -> str:
    """The id of the firewall ruleset; empty: there is none."""
    assert store.state is not None
    if not cloud.allow_ssh_from:
        return ""
    name = store.state.named("ssh")
    if store.state.ruleset:  # it was asked for before
        for found in await api.rulesets():
            if found.name == name:
                return found.id
    store.changed(replace(store.state, ruleset=name))
    return (await api.add_ruleset(name, store.state.region, cloud.allow_ssh_from)).id


def _is_ready(instance: Instance) -> bool:
    return instance.status == "active" and bool(instance.ip)


def _costs(store: Store) -> str:
    """What runs now, for an error."""
    state = store.state
    there = [node for node in state.alive if node.id] if state else []
    if not there:
        return "no instance runs"
    cents = sum(node.cents for node in there)
    return f"{plural(len(there), 'instance')} of the cluster cost {money(cents)} an hour"


def _host_key() -> tuple[str, str]:
    """A new key of a host, private and public."""
    try:
        with private_folder() as folder:
            key = folder / "key"
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "cockpit", "-f", key],
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
            return key.read_text(), (folder / "key.pub").read_text().strip()
    except FileNotFoundError as error:
        raise CockpitError(
            "There is no program ssh-keygen.",
            "cockpit makes the host keys of instances with it.",
            "Install it, for example: apt install openssh-client",
        ) from error
