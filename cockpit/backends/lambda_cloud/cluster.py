"""A cluster on Lambda Cloud from the description to Ray, and its end."""

from __future__ import annotations

import ipaddress
import time
from pathlib import Path

from msgspec.structs import replace

from cockpit.backends.lambda_cloud import instances, setup
from cockpit.backends.lambda_cloud.api import Api, Instance
from cockpit.backends.lambda_cloud.description import Cloud, alias, own_ssh_config
from cockpit.backends.lambda_cloud.description import hosts as described
from cockpit.backends.lambda_cloud.instances import Progress, Removed
from cockpit.backends.lambda_cloud.plan import Plan
from cockpit.backends.lambda_cloud.state import Store, folder
from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.description import Hosts, read
from cockpit.backends.ssh.fleet import Fleet
from cockpit.model.error import CockpitError, UnreachableError
from cockpit.model.text import one_line
from cockpit.sources.polling.pause import pause

OPERATOR_S = 0.5
"""Between two checks whether an operator has ended."""


async def up(
    api: Api,
    cloud: Cloud,
    planned: Plan,
    store: Store,
    recovery: str,
    timeout_s: float,
    progress: Progress,
) -> Hosts:
    """Make what is missing, set the instances up, and start Ray. Can be repeated after any end."""
    deadline = time.monotonic() + timeout_s
    before = _written(store)
    running = await instances.make(api, cloud, planned, store, timeout_s, progress)
    hosts = _write(cloud, planned, store, running)
    named = {node.wanted.name for node in planned.nodes}
    targets = [host for host in hosts.hosts if host.name in named]
    await setup.run(cloud, hosts, targets, max(60.0, deadline - time.monotonic()), progress)
    if await _is_up(hosts):
        if before is None or before.hosts == hosts.hosts:
            return hosts
        # An instance was replaced: the operator has read the old addresses.
        progress("An instance has another address: the operator is started again.")
        lifecycle.end_operator(hosts)
        while await _is_up(hosts):
            await pause(OPERATOR_S)
    await lifecycle.up(hosts, recovery, max(60.0, deadline - time.monotonic()), progress)
    return hosts


async def down(api: Api, store: Store, timeout_s: float, progress: Progress) -> Removed:
    """End Ray where the hosts can be reached, then everything in the account."""
    state = store.state
    assert state is not None
    hosts = _written(store)
    if hosts is not None:
        try:
            await lifecycle.down(hosts)
        except CockpitError as error:
            # Its instances end all the same; hosts on-premises may have kept processes.
            names = {node.host for node in state.nodes}
            others = [host.name for host in hosts.hosts if host.name not in names]
            progress(
                f"Warning: Ray was not ended on all hosts: {one_line(error.why or error.what)}"
            )
            if others and isinstance(error, UnreachableError):
                progress(f"Not instances, so look at them: {', '.join(others)}.")
    removed = await instances.end(api, store, state, timeout_s, progress)
    store.remove()
    return removed


def hosts_file(cluster: str) -> Path:
    """For `--hosts`."""
    return folder(cluster) / "hosts.toml"


def _written(store: Store) -> Hosts | None:
    path = store.folder / "hosts.toml"
    return read(str(path)) if path.exists() else None


def _write(cloud: Cloud, planned: Plan, store: Store, running: dict[str, Instance]) -> Hosts:
    """The files for the backend `ssh`."""
    placed, config, known = [], [], []
    state = store.state
    assert state is not None
    for node in planned.nodes:
        name = node.wanted.name
        instance, recorded = running[name], state.node(name)
        assert recorded is not None
        public, private = (
            _address(name, instance.ip),
            _address(name, instance.private_ip or instance.ip),
        )
        placed.append(node.placed(private))
        state = state.with_node(replace(recorded, address=private, ip=public))
        key = alias(cloud.cluster, name)
        config += [f"Host {key}", f"  HostName {public}", f"  HostKeyAlias {key}"]
        config += [f'  IdentityFile "{cloud.ssh_key}"', "  IdentitiesOnly yes"]
        config += [f'  UserKnownHostsFile "{store.folder}/known_hosts"']
        config += ["  GlobalKnownHostsFile none", "  StrictHostKeyChecking yes"]
        known += [f"{key} {' '.join(line.split()[:2])}" for line in recorded.host_keys]
    store.changed(state)
    config += ["Host *", f'  Include "{own_ssh_config(cloud) or "~/.ssh/config"}"']
    path, ssh_config = store.folder / "hosts.toml", store.folder / "ssh_config"
    text, hosts = described(cloud, placed, path, ssh_config)
    files = {"ssh_config": config, "known_hosts": known, "hosts.toml": [text]}
    store.write({name: "\n".join(found) + "\n" for name, found in files.items()})
    return hosts


def _address(host: str, given: str | None) -> str:
    """It goes into files of ssh and into commands: only an address may."""
    try:
        return str(ipaddress.ip_address(given or ""))
    except ValueError:
        raise CockpitError(
            f"The instance of {host} has no address.",
            f"The API's list has {one_line(given or 'none', 60)!r}.",
            "Try again in a minute.",
        ) from None


async def _is_up(hosts: Hosts) -> bool:
    """Whether the cluster is recorded on its head, and its operator runs."""
    fleet = Fleet(hosts)
    try:
        state = await fleet.state(hosts.head)
        return state.cluster is not None and state.operator
    finally:
        await fleet.aclose()
