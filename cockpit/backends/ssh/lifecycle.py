"""Start a cluster on hosts, and take down exactly what was started."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, to_builtins

from cockpit.backends.local.pods.pod_logs import last_line
from cockpit.backends.local.pods.process import ProcessId, identify, kill
from cockpit.backends.local.spec import GroupSpec
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.description import Host, Hosts
from cockpit.backends.ssh.fleet import Fleet
from cockpit.backends.ssh.state import ClusterRecord
from cockpit.config import paths
from cockpit.format import in_seconds, plural
from cockpit.model.cluster import ClusterHealth, Resources
from cockpit.model.error import CockpitError, UnreachableError
from cockpit.model.event import ClusterSeen
from cockpit.model.text import one_line

SKEW_S = 5.0
"""Clocks that differ by more make the phases of a recovery wrong."""
RETIRE_S = 15.0
Progress = Callable[[str], None]


class Checked(Struct, frozen=True):
    """What a host answered before anything is started."""

    python: str
    ray: str
    at_s: float
    pods: tuple[str, ...]
    others: tuple[str, ...]
    cluster: str
    """The UID of the cluster whose record it has."""
    address: str
    """Why Ray cannot listen at its address; empty: it can."""
    gpus: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Removed(Struct, frozen=True):
    ended: int
    """Processes."""
    hosts: int


async def check(hosts: Hosts, fleet: Fleet, progress: Progress) -> dict[str, Checked]:
    """By host; raises CockpitError that names each host on which no cluster can be started."""

    async def one(host: Host) -> Checked:
        began = time.time()
        agent = await fleet.agent(host)
        raw = await agent.ask("facts", {"address": host.address})
        found = convert(raw, Checked)
        skew_s = found.at_s - (began + time.time()) / 2
        if abs(skew_s) > SKEW_S + (time.time() - began) / 2:
            progress(
                f"Warning: the clock of host {host.name} differs by {in_seconds(abs(skew_s), 0)}: "
                "the phases of a recovery will be wrong. Run NTP on it."
            )
        return found

    answers = await asyncio.gather(*map(one, hosts.hosts), return_exceptions=True)
    checked: dict[str, Checked] = {}
    wrong: dict[str, BaseException | str] = {}
    for host, answer in zip(hosts.hosts, answers, strict=True):
        if isinstance(answer, Checked):
            checked[host.name] = answer
            if why := _unfit(host, answer):
                wrong[host.name] = why
        elif isinstance(answer, CockpitError):
            wrong[host.name] = answer
        elif isinstance(answer, BaseException):
            raise answer
    versions = {host.ray for host in checked.values()}
    if not wrong and len(versions) > 1:
        named = ", ".join(f"{name} has {found.ray}" for name, found in checked.items())
        raise CockpitError(
            "The hosts have different versions of Ray.",
            one_line(named),
            "Install the same version on all of them.",
        )
    if len(wrong) == 1 and isinstance(error := next(iter(wrong.values())), CockpitError):
        raise error
    if wrong:
        reasons = "; ".join(
            f"{name}: {one_line(error.what if isinstance(error, CockpitError) else str(error))}"
            for name, error in wrong.items()
        )
        raise CockpitError(
            f"{len(wrong)} of {plural(len(hosts.hosts), 'host')} cannot be used.",
            reasons,
            f"Fix them, or remove them from {hosts.path}.",
        )
    return checked


def _unfit(host: Host, found: Checked) -> str:
    if not found.ray:
        return f"{host.python} has no Ray; install it there, or set python or venv"
    if found.address:
        return f"Ray cannot listen at {host.address}: {one_line(found.address)}"
    if found.others:
        return f"pod {one_line(found.others[0])} of another cluster runs at {host.address}"
    if (host.gpus or 0) > len(found.gpus):
        return f"it has {len(found.gpus)} GPUs by nvidia-smi, and {host.gpus:g} are asked for"
    return ""


async def up(hosts: Hosts, recovery: str, timeout_s: float, progress: Progress) -> None:
    """Start the head and the workers; returns when all of them are alive in Ray.

    A cluster whose operator has ended gets a new one. After a failure, a new cluster is taken
    down again.
    """
    fleet = Fleet(hosts)
    try:
        checked = await check(hosts, fleet, progress)
        state = await fleet.state(hosts.head)
        if state.cluster is not None and state.operator:
            raise CockpitError(
                f"Cluster {hosts.cluster} is already up on these hosts.",
                "Its operator runs.",
                f"Open it with: cockpit --hosts {hosts.path}; remove it with: "
                f"cockpit down --on hosts {hosts.path}",
            )
        is_new = state.cluster is None
        if is_new:
            left = [pod for found in checked.values() for pod in found.pods]
            if left:
                raise CockpitError(
                    f"Pods of an earlier cluster {hosts.cluster} are left.",
                    f"Left: {one_line(', '.join(left))}.",
                    f"Remove them: cockpit down --on hosts {hosts.path}",
                )
            agent = await fleet.agent(hosts.head)
            record = {"cluster": to_builtins(_record(hosts, recovery))}
            await agent.ask("init", record, secret=secrets.token_hex(32))
            progress(f"Ray {checked[hosts.head.name].ray} on {plural(len(hosts.hosts), 'host')}.")
    finally:
        await fleet.aclose()
    try:
        operator = _start_operator(hosts)
        await _wait(hosts, operator, timeout_s, progress)
    except BaseException:
        if is_new:
            progress("Taking down what was started.")
            await down(hosts)
        raise


def _record(hosts: Hosts, recovery: str) -> ClusterRecord:
    groups = []
    for name, replicas in hosts.replicas.items():
        here = hosts.of_group(name)
        resources = Resources(cpus=here[0].cpus or 0.0, gpus=here[0].gpus or 0.0)
        groups.append(GroupSpec(name, replicas, 0, len(here), resources))
    uid = secrets.token_hex(8)
    return ClusterRecord(hosts.cluster, uid, time.time(), tuple(groups), recovery)


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
    hosts: Hosts, operator: subprocess.Popen[bytes], timeout_s: float, progress: Progress
) -> None:
    backend, shown = SshBackend(hosts), ""
    try:
        async with asyncio.timeout(timeout_s):
            async for event in backend.watch():
                if operator.poll() is not None:
                    raise CockpitError(
                        f"The operator of cluster {hosts.cluster} has ended.",
                        last_line(operator_log(hosts)),
                    )
                if not isinstance(event, ClusterSeen):
                    continue
                if event.health is ClusterHealth.READY:
                    return
                if event.message != shown:
                    shown = event.message
                    progress(f"Waiting: {shown}")
    except TimeoutError:
        raise CockpitError(
            f"Cluster {hosts.cluster} is not ready after {in_seconds(timeout_s, 0)}.",
            shown,
            f"Its operator's log is {operator_log(hosts)}.",
        ) from None
    finally:
        await backend.aclose()


async def down(hosts: Hosts) -> Removed:
    """End every process of the cluster on its hosts, and remove their files.

    Raises UnreachableError that names hosts which were not reached, after the others are done, and
    CockpitError if a process or file is left.
    """
    fleet = Fleet(hosts)
    try:
        failed: dict[str, CockpitError] = {}
        uid = ""
        try:
            state = await fleet.state(hosts.head)
            uid = state.cluster.uid if state.cluster is not None else ""
            if uid:
                head = await fleet.agent(hosts.head)
                await head.ask("retire", {"wait_s": RETIRE_S})
        except CockpitError as error:
            failed[hosts.head.name] = error
        end_operator(hosts)

        async def one(host: Host) -> Any:
            agent = await fleet.agent(host)
            return await agent.ask("remove", {"cluster": uid})

        answers = await asyncio.gather(*map(one, hosts.hosts), return_exceptions=True)
    finally:
        await fleet.aclose()
    ended = 0
    for host, answer in zip(hosts.hosts, answers, strict=True):
        if isinstance(answer, CockpitError):
            failed[host.name] = answer
        elif isinstance(answer, BaseException):
            raise answer
        else:
            ended += answer["ended"]
            if answer["left"] or answer["files"]:
                failed[host.name] = CockpitError(f"{answer['left']} processes do not end")
    if failed:
        raise UnreachableError(
            f"Cluster {hosts.cluster} is not removed from {', '.join(failed)}.",
            one_line("; ".join(f"{name}: {error.what}" for name, error in failed.items())),
            f"Try again when they are reached: cockpit down --on hosts {hosts.path}",
        )
    log = operator_log(hosts)
    log.unlink(missing_ok=True)
    return Removed(ended, len(hosts.hosts))


def end_operator(hosts: Hosts) -> None:
    """The one that was started from here. It ended by itself when the record was removed, unless
    the head's host cannot be reached.
    """
    import signal

    file = operator_log(hosts).with_suffix(".pid")
    try:
        pid, ticks = file.read_text().split()
        kill(ProcessId(int(pid), int(ticks)), signal.SIGTERM)
    except (OSError, ValueError):
        return
    file.unlink()


def described(hosts: Hosts) -> str:
    """What `up` starts, in a line."""
    groups = ", ".join(
        f"{count} of {plural(len(hosts.of_group(name)), 'host')} in group {name}"
        for name, count in hosts.replicas.items()
    )
    return f"a head on {hosts.head.name} and {groups or 'no workers'}"
