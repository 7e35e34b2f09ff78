"""Start a cluster on hosts, and take down exactly what was started."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from cockpit.backends.local.pods.pod_logs import last_line
from cockpit.backends.local.pods.process import ProcessId, identify, kill
from cockpit.backends.local.spec import GroupSpec
from cockpit.backends.ssh import host_check, setup
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.description import Host, Hosts
from cockpit.backends.ssh.fleet import Fleet
from cockpit.backends.ssh.host_check import Checked
from cockpit.backends.ssh.state import ClusterRecord, Ended, HostState
from cockpit.backends.ssh.watch import NO_OPERATOR
from cockpit.config import paths
from cockpit.format import in_seconds, plural
from cockpit.model.cluster import ClusterHealth, Resources
from cockpit.model.error import CockpitError, UnreachableError, UsageError
from cockpit.model.event import ClusterSeen, GroupsListed
from cockpit.model.text import one_line
from cockpit.sources.polling.pause import pause

RETIRE_S = 15.0
OPERATOR_S = 0.5
"""Between two checks whether an operator has ended."""
AGAIN = "Run the command again."
Progress = Callable[[str], None]
_NUMBER = re.compile(r"\d+")


class Removed(Struct, frozen=True):
    ended: int
    """Processes."""
    hosts: int


class NotRemovedError(UnreachableError):
    """`hosts`: the names of those that may have processes or files of the cluster."""

    def __init__(self, what: str, why: str, todo: str, hosts: tuple[str, ...]) -> None:
        super().__init__(what, why, todo)
        self.hosts = hosts


async def up(hosts: Hosts, recovery: str, timeout_s: float, progress: Progress) -> None:
    """Start the head and the workers; returns when all of them are alive in Ray.

    Packages that the description has are installed first.
    Can be repeated: of a cluster that exists it starts what is missing. If the file of the hosts
    has changed, the operator is started again. After a failure, a new cluster is deleted.
    """
    fleet = Fleet(hosts)
    try:
        await set_up(hosts, fleet, timeout_s, progress)
        there = await _existing(fleet)
        is_new = there.cluster is None
        checked = await host_check.require(hosts, fleet, progress, head_alone=not is_new)
        if there.cluster is None:
            await _create(hosts, fleet, checked, recovery, progress)
        else:
            progress(f"Cluster {hosts.cluster} exists: waiting until its pods are ready.")
            there = await _updated(hosts, fleet, there.cluster, there.operator, progress)
    finally:
        await fleet.aclose()
    try:
        operator = None if there.operator else _start_operator(hosts)
        await _wait(hosts, operator, len(checked) == len(hosts.hosts), timeout_s, progress)
    except BaseException:
        if is_new:
            progress("Deleting what was started.")
            try:
                await down(hosts)
            except CockpitError as error:  # the first error is the cause
                progress(f"Warning: {error.what_and_why} {error.todo}")
        raise


async def set_up(hosts: Hosts, fleet: Fleet, timeout_s: float, progress: Progress) -> None:
    """On all hosts at the same time. A host that cannot be reached is left to the check of all."""

    async def one(host: Host) -> None:
        try:
            agent = await fleet.agent(host)
        except CockpitError:
            return
        await setup.run(agent.connection, setup.own_steps(host), progress, AGAIN)

    targets = [host for host in hosts.hosts if host.packages]
    try:
        async with asyncio.timeout(timeout_s):
            results = await asyncio.gather(*map(one, targets), return_exceptions=True)
    except TimeoutError:
        raise CockpitError(
            f"The hosts are not set up after {in_seconds(timeout_s, 0)}.",
            todo=f"Run it again with more time: cockpit up --on hosts {hosts.path} --timeout S",
        ) from None
    for error in results:
        if isinstance(error, BaseException):
            raise error


async def _existing(fleet: Fleet) -> HostState:
    """The state of the head's host; without a cluster if it cannot be reached, which the check of
    all hosts reports.
    """
    try:
        return await fleet.state(fleet.hosts.head)
    except CockpitError:
        return HostState()


async def _create(
    hosts: Hosts, fleet: Fleet, checked: dict[str, Checked], recovery: str, progress: Progress
) -> None:
    left = [pod for found in checked.values() for pod in found.pods]
    if left:
        raise CockpitError(
            f"Pods of an earlier cluster {hosts.cluster} are left.",
            f"Left: {one_line(', '.join(left))}.",
            f"Remove them: cockpit down --on hosts {hosts.path}",
        )
    record = with_hosts(
        ClusterRecord(hosts.cluster, secrets.token_hex(8), time.time(), (), recovery), hosts
    )
    agent = await fleet.agent(hosts.head)
    await agent.ask("init", {"cluster": to_builtins(record)}, secret=secrets.token_hex(32))
    progress(f"Ray {checked[hosts.head.name].ray} on {plural(len(hosts.hosts), 'host')}.")


async def _updated(
    hosts: Hosts, fleet: Fleet, found: ClusterRecord, operator: bool, progress: Progress
) -> HostState:
    """Record the hosts of the file, after the operator that has read an earlier file has ended."""
    require_all_described(hosts, found)
    wanted = with_hosts(found, hosts)
    if wanted == found:
        return HostState(cluster=found, operator=operator)
    if operator:
        progress(f"{hosts.path} has changed: the operator is started again.")
        if not end_operator(hosts):
            raise CockpitError(
                f"{hosts.path} has changed since cluster {hosts.cluster} was started.",
                "Its operator runs on another computer, and has read the earlier file.",
                "Run cockpit up there with the changed file.",
            )
        try:
            async with asyncio.timeout(RETIRE_S):
                while (await fleet.state(hosts.head)).operator:
                    await pause(OPERATOR_S)
        except TimeoutError:
            raise UnreachableError(
                f"The operator of cluster {hosts.cluster} has not ended in "
                f"{in_seconds(RETIRE_S, 0)}.",
                f"Host {hosts.head.name} is slow, or another operator has started.",
                AGAIN,
            ) from None
    agent = await fleet.agent(hosts.head)
    request = {"revision": found.revision, "cluster": to_builtins(wanted)}
    if (await agent.ask("change", request)).get("conflict"):
        raise CockpitError(f"Cluster {hosts.cluster} was changed at the same time.", "", AGAIN)
    return HostState(cluster=wanted)


def with_hosts(record: ClusterRecord, hosts: Hosts) -> ClusterRecord:
    """With the worker groups and hosts of the file; an existing group keeps its size."""
    groups = {group.name: group for group in record.groups}
    described = {host.name: host.fingerprint for host in hosts.hosts}
    is_changed = bool(record.groups) and record.hosts != described
    for name, replicas in hosts.replicas.items():
        here = hosts.of_group(name)
        resources = Resources(cpus=here[0].cpus or 0.0, gpus=here[0].gpus or 0.0)
        known = groups.get(name) or GroupSpec(name, replicas, 0, len(here), resources)
        groups[name] = replace(known, max=len(here)) if is_changed else known
    return replace(
        record,
        groups=tuple(groups.values()),
        hosts=described,
        revision=record.revision + is_changed,
    )


def require_all_described(hosts: Hosts, record: ClusterRecord) -> None:
    """Raises UsageError for hosts that the cluster has and the file has not: nothing would end
    their pods.
    """
    known = {host.name for host in hosts.hosts}
    if missing := [name for name in record.hosts if name not in known]:
        raise UsageError(
            f"{hosts.path} no longer describes {', '.join(map(one_line, missing))}.",
            f"Cluster {hosts.cluster} was started with these hosts, and may have pods there.",
            f"Add them again, and delete the cluster first: cockpit down --on hosts {hosts.path}",
        )


def _start_operator(hosts: Hosts) -> subprocess.Popen[bytes]:
    log = operator_log(hosts)
    paths.make_private(log.parent)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        operator = subprocess.Popen(
            [sys.executable, "-m", "cockpit.backends.ssh.operator", hosts.path],
            cwd=Path(__file__).parents[3],  # for `-m` to find this cockpit
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=handle,
            start_new_session=True,
        )
    finally:
        os.close(handle)
    process = identify(operator.pid)
    if process is not None:
        paths.replace_file(log.with_suffix(".pid"), f"{process.pid} {process.start_ticks}")
    return operator


def operator_log(hosts: Hosts) -> Path:
    return paths.state_dir() / "hosts" / f"{hosts.cluster}.log"


async def _wait(
    hosts: Hosts,
    operator: subprocess.Popen[bytes] | None,
    all_usable: bool,
    timeout_s: float,
    progress: Progress,
) -> None:
    """Until every group has its pods; with hosts that cannot be used, on the others."""
    backend, shown = SshBackend(hosts), ""
    health, full = ClusterHealth.UNKNOWN, False
    try:
        async with asyncio.timeout(timeout_s):
            async for event in backend.watch():
                if operator is not None and operator.poll() is not None:
                    raise CockpitError(
                        f"The operator of cluster {hosts.cluster} has ended.",
                        last_line(operator_log(hosts)),
                        f"Its log is {operator_log(hosts)}.",
                    )
                if isinstance(event, GroupsListed):
                    full = all(group.ready >= group.desired for group in event.groups)
                elif isinstance(event, ClusterSeen):
                    health = event.health
                    if health is ClusterHealth.READY:
                        return
                    is_new = is_other(event.message, shown)
                    shown = event.message
                    if is_new:
                        progress(f"Waiting: {shown}")
                kept = health is ClusterHealth.DEGRADED and shown != NO_OPERATOR
                if full and kept and not all_usable:
                    return
    except TimeoutError:
        raise CockpitError(
            f"Cluster {hosts.cluster} is not ready after {in_seconds(timeout_s, 0)}.",
            shown,
            f"Its operator's log is {operator_log(hosts)}.",
        ) from None
    finally:
        await backend.aclose()


def is_other(message: str, before: str) -> bool:
    """Whether more than a number has changed: on many hosts, each that answers changes one."""
    return _NUMBER.sub("", message) != _NUMBER.sub("", before)


async def down(hosts: Hosts, vanished: Collection[str] = ()) -> Removed:
    """End every process of the cluster on its hosts, and remove their files.

    Raises NotRemovedError that names the hosts which were not reached or still have a process or a
    file, after the others are done. Raises UsageError, and changes nothing, if the file does not
    describe all hosts of the cluster. `vanished`: the names of hosts that no longer exist.
    """
    fleet = Fleet(hosts)
    there = [host for host in hosts.hosts if host.name not in vanished]
    try:
        failed: dict[str, CockpitError] = {}
        uid = ""
        try:
            state = await fleet.state(hosts.head)
            if state.cluster is not None:
                require_all_described(hosts, state.cluster)
                uid = state.cluster.uid
                head = await fleet.agent(hosts.head)
                await head.ask("retire", {"wait_s": RETIRE_S})
        except UsageError:
            raise
        except CockpitError as error:
            failed[hosts.head.name] = error
        end_operator(hosts)

        async def one(host: Host) -> Ended:
            agent = await fleet.agent(host)
            return await agent.ask_for(Ended, "remove", {"cluster": uid})

        answers = await asyncio.gather(*map(one, there), return_exceptions=True)
    finally:
        await fleet.aclose()
    ended = 0
    for host, answer in zip(there, answers, strict=True):
        if isinstance(answer, CockpitError):
            failed[host.name] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            ended += answer.ended
            if answer.left or answer.files:
                left = plural(answer.left, "process")
                failed[host.name] = CockpitError(f"{left} and its files are left.")
    if failed:
        raise NotRemovedError(
            f"Cluster {hosts.cluster} is not removed from {', '.join(failed)}.",
            one_line("; ".join(f"{name}: {error.what}" for name, error in failed.items())),
            f"Try again when they are reached: cockpit down --on hosts {hosts.path}",
            tuple(failed),
        )
    log = operator_log(hosts)
    log.unlink(missing_ok=True)
    return Removed(ended, len(there))


def end_operator(hosts: Hosts) -> bool:
    """End the one that was started from here; returns whether it ran. After the record is removed,
    it also ends without this, unless the head's host cannot be reached.
    """
    file = operator_log(hosts).with_suffix(".pid")
    try:
        pid, ticks = file.read_text().split()
        ran = kill(ProcessId(int(pid), int(ticks)), signal.SIGTERM)
    except (OSError, ValueError):
        return False
    file.unlink()
    return ran


def described(hosts: Hosts) -> str:
    """What `up` starts, in a line."""
    groups = ", ".join(
        f"{count} of {plural(len(hosts.of_group(name)), 'host')} in group {name}"
        for name, count in hosts.replicas.items()
    )
    return f"a head on {hosts.head.name} and {groups or 'no workers'}"


def planned(hosts: Hosts) -> list[str]:
    """What `up` does, in lines."""
    by_step: dict[str, list[str]] = {}
    for host in hosts.hosts:
        for step in setup.own_steps(host):
            what = f"{step.what}, if it has any" if step.needs_gpu and not host.gpus else step.what
            if not step.needs_gpu or host.gpus != 0:
                by_step.setdefault(what, []).append(host.name)
    lines = [f"On {', '.join(names)}: {what}." for what, names in by_step.items()]
    return [*lines, f"Start cluster {hosts.cluster}: {described(hosts)}."]
