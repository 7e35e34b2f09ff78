"""A cluster on Lambda Cloud from the description to Ray, and its end."""

from __future__ import annotations

import time
from pathlib import Path

from msgspec.structs import replace

from cockpit.backends.lambda_cloud import instances, setup
from cockpit.backends.lambda_cloud.api import Api, Instance
from cockpit.backends.lambda_cloud.description import Cloud, alias, own_ssh_config
from cockpit.backends.lambda_cloud.description import hosts as described
from cockpit.backends.lambda_cloud.instances import Progress, Removed
from cockpit.backends.lambda_cloud.plan import Plan
from cockpit.backends.lambda_cloud.state import State, Store, folder
from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.description import Hosts, ip_address, read
from cockpit.backends.ssh.lifecycle import NotRemovedError
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line


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
    running = await instances.make(api, cloud, planned, store, timeout_s, progress)
    hosts = _write(cloud, planned, store, running)
    named = {node.wanted.name for node in planned.nodes}
    targets = [host for host in hosts.hosts if host.name in named]
    await setup.run(cloud, hosts, targets, max(60.0, deadline - time.monotonic()), progress)
    await lifecycle.up(hosts, recovery, max(60.0, deadline - time.monotonic()), progress)
    state = store.state
    assert state is not None
    if state.idle_since_s is not None:  # the idle time does not include the start
        store.changed(replace(state, idle_since_s=time.time()))
    return hosts


async def down(api: Api, store: Store, timeout_s: float, progress: Progress) -> Removed:
    """End Ray where the hosts can be reached, then everything in the account.

    Raises NotRemovedError for hosts on-premises that may have processes; the record is kept, so
    that it can be repeated.
    """
    state = store.state
    assert state is not None
    left = await _end_ray(store, state, progress)
    removed = await instances.end(api, store, state, timeout_s, progress)
    if left is not None:
        raise left
    store.remove()
    return removed


async def _end_ray(store: Store, state: State, progress: Progress) -> NotRemovedError | None:
    """What is left on hosts on-premises; an instance ends with everything on it."""
    hosts = _written(store)
    if hosts is None:
        return None
    alive = {node.host for node in state.alive}
    ended = {node.host for node in state.nodes} - alive
    if hosts.head.name in ended:
        return None
    try:
        await lifecycle.down(hosts, ended)
    except CockpitError as error:
        names = tuple(host.name for host in hosts.hosts if host.name not in ended)
        failed = error.hosts if isinstance(error, NotRemovedError) else names
        own = tuple(name for name in failed if name not in alive)
        why = one_line(error.why or error.what)
        progress(f"Warning: Ray was not ended on all hosts: {why}")
        if own:
            return NotRemovedError(
                f"The instances have ended, but cluster {state.cluster} is not removed from "
                f"{', '.join(own)}.",
                why,
                f"Try again when they are reached: cockpit down --on lambda {state.description}",
                own,
            )
    return None


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
        return ip_address(given or "")
    except ValueError:
        raise CockpitError(
            f"The instance of {host} has no address.",
            f"The API's list has {one_line(given or 'none', 60)!r}.",
            "Try again in a minute.",
        ) from None
