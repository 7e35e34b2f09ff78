"""What `cockpit doctor` checks on a cluster of hosts: what `up` checks, and what runs there."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping

from cockpit.backends.lambda_cloud.description import hosts_of
from cockpit.backends.ssh import host_check, lifecycle
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.description import Host, Hosts
from cockpit.backends.ssh.host_check import SUBJECTS, Checked, Finding, Result
from cockpit.backends.ssh.state import HostState
from cockpit.cli.cluster.check import Check, answers, failed
from cockpit.config.cluster_flags import Place
from cockpit.format import bytes_text, in_seconds, plural
from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.model.text import one_line
from cockpit.sources.ray.dashboard import Dashboard

UP = "cockpit up --on hosts"


def checks(where: Place) -> list[Check]:
    """In the order in which one needs the other; it ends where nothing more can be known."""
    program = shutil.which("ssh")
    fix = "install it, for example: apt install openssh-client"
    found = [Check("ssh", program is not None, program or "not installed", fix)]
    try:
        hosts = hosts_of(where.hosts)
    except CockpitError as error:
        return [*found, failed("hosts file", error)]
    what = f"{plural(len(hosts.hosts), 'host')} of cluster {hosts.cluster}"
    found.append(Check("hosts file", True, what))
    if program is None:
        return found
    on_hosts, state = asyncio.run(_asked(hosts))
    found += on_hosts
    if state is None or state.cluster is None:
        return found
    return [*found, answers(f"dashboard of {hosts.cluster}", SshBackend(hosts))]


async def _asked(hosts: Hosts) -> tuple[list[Check], HostState | None]:
    """All that one connection to each host answers; the state of the head's host, if reached."""
    backend = SshBackend(hosts)
    try:
        results = await host_check.ask(hosts, backend.fleet)
        found = list(on_hosts(hosts, results))
        try:
            state = await backend.fleet.state(hosts.head)
        except CockpitError as error:
            return [*found, failed("cluster", error)], None
        found += running(hosts, state)
        if state.living is not None:
            found.append(await _token(backend))
        return found, state
    finally:
        await backend.aclose()


def on_hosts(hosts: Hosts, results: Mapping[str, Result]) -> Iterator[Check]:
    """A check a subject; a subject with findings has one for each host that has them."""
    checked: dict[str, Checked] = {}
    for name, result in results.items():
        if isinstance(result, CockpitError):
            yield failed(f"host {name}", result)
        else:
            checked[name] = result
    yield Check(
        "reached",
        len(checked) == len(results),
        f"{len(checked)} of {plural(len(results), 'host')}",
        "fix the hosts that failed above",
    )
    if not checked:
        return
    versions = host_check.different_versions(checked)
    if versions:
        fix = "install the same versions on all hosts, or set venv to where they are"
        yield Check("versions", False, versions, fix)
    by_subject: dict[str, list[tuple[Host, Finding]]] = {subject: [] for subject in SUBJECTS}
    for name, found in checked.items():
        host = hosts.named(name)
        for one in host_check.findings(host, found):
            by_subject[one.subject].append((host, one))
    for subject, findings in by_subject.items():
        for host, one in findings:
            yield Check(f"{subject} on {host.name}", False, one.problem, one.fix)
        if not findings and (text := _well(subject, hosts, checked)):
            yield Check(subject, True, text)


def _well(subject: str, hosts: Hosts, checked: Mapping[str, Checked]) -> str:
    """What is known about a subject without findings; empty: nothing to check."""
    all_of = list(checked.values())
    runs = any(found.pods for found in all_of)
    if subject == "ray":
        rays = sorted({f"{found.ray} on Python {found.python}" for found in all_of})
        return one_line(", ".join(rays))
    if subject == "address":
        return "Ray can listen at the address of each host"
    if subject == "room":
        least = min(found.disk_free_bytes for found in all_of)
        return f"at least {bytes_text(least)} free in /tmp"
    if subject == "gpus":
        asked = sum(hosts.named(name).gpus or 0 for name in checked)
        found = sum(len(each.gpus) for each in all_of)
        return f"nvidia-smi lists {found}, {asked:g} requested" if found or asked else ""
    if subject == "supervisor" and (units := sum(hosts.named(name).is_unit for name in checked)):
        return f"systemd on {plural(units, 'host')}"
    if subject == "clock":
        most = max(abs(found.skew_s) for found in all_of)
        return f"differ by {in_seconds(most, 1)} at most" if most else "no difference measured"
    if subject == "limits":
        least_files = min((found.open_files for found in all_of if found.open_files), default=0)
        return f"at least {plural(least_files, 'open file')} for a process" if least_files else ""
    if subject == "token" and runs:
        return "every Ray process requires it"
    if subject == "ports" and runs:
        return _ports(all_of)
    return ""


def _ports(all_of: list[Checked]) -> str:
    count = max(len(found.open_ports) for found in all_of)
    public = sorted({address for found in all_of for address in found.public})
    text = "dashboard and client server listen on the head's address only"
    if count:
        where = f"all addresses, also {', '.join(public)}" if public else "all addresses"
        text += f"; up to {plural(count, 'port')} per host listen on {where} and require the token"
    return one_line(text)


def running(hosts: Hosts, state: HostState) -> Iterator[Check]:
    """Whether the cluster is up, as the file describes it, and kept by an operator."""
    cluster = state.cluster
    fix = f"{UP} {hosts.path}"
    if cluster is None:
        yield Check("cluster", False, "not started", fix)
        return
    try:
        lifecycle.require_all_described(hosts, cluster)
        changed = lifecycle.with_hosts(cluster, hosts) != cluster
        what = f"{hosts.path} has changed since it was started" if changed else "as in the file"
        yield Check("cluster", not changed, what, fix)
    except CockpitError as error:
        yield failed("cluster", error)
    what = "running" if state.operator else "not running: nothing is replaced or scaled"
    yield Check("operator", state.operator, what, fix)


async def _token(backend: SshBackend) -> Check:
    """Whether the dashboard refuses a request without the token, asked through the forward."""
    name = "ray token"

    async def without() -> DashboardRoute:
        route = await backend.dashboard()
        return DashboardRoute(route.base_url, socket_path=route.socket_path, via=route.via)

    try:
        async with Dashboard(without) as dashboard:
            await dashboard.nodes()
    except NotAllowedError:
        return Check(name, True, "the dashboard refuses requests without it")
    except CockpitError as error:
        return failed(name, error)
    fix = f"cockpit down, then {UP}: everybody who reaches the port can run code on the hosts"
    return Check(name, False, "the dashboard answers without it", fix)
