"""What `up` checks on each host before it starts anything there, and `doctor` at any time."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from typing import Annotated

from msgspec import Meta, Struct

from cockpit.backends.ssh.description import Host, Hosts
from cockpit.backends.ssh.fleet import Fleet
from cockpit.format import bytes_text, in_seconds, plural
from cockpit.model.decoding.value_range import EARLIEST_S, LATEST_S
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

SKEW_S = 5.0
"""Clocks that differ by more make the phases of a recovery wrong."""
LEAST_RAY = (2, 52)
"""An older Ray has no token: anyone who reaches a port could run code on the hosts."""
FREE_BYTES = 512 << 20
"""In /tmp, for Ray's logs and what it spills."""
FULL = 0.95
"""Ray starts no task on a node whose disk is fuller (RAY_local_fs_capacity_threshold)."""
OPEN_FILES = 4096
"""Ray raises its soft limit up to the hard one, and warns below this (`ray.init`, Ray 2.60)."""
_VERSION = re.compile(r"(\d+)\.(\d+)")


class Checked(Struct, frozen=True):
    """What a host answered."""

    python: str
    ray: str
    at_s: Annotated[float, Meta(ge=EARLIEST_S, le=LATEST_S)]
    pods: tuple[str, ...]
    others: tuple[str, ...]
    cluster: str
    """The UID of the cluster whose record it has."""
    address: str
    """Why Ray cannot listen at its address; empty: it can."""
    disk_bytes: int
    disk_free_bytes: int
    """Of the file system of /tmp."""
    gpus: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    open_ports: tuple[int, ...] = ()
    """On which the pod listens at all addresses."""
    tokenless: tuple[str, ...] = ()
    """Processes of the pod that require no token."""
    private_ports: tuple[int, ...] = ()
    """On the head: those that Ray can bind to one address, of its dashboard and client server. The
    other ports of Ray 2.60 listen at all addresses, and this cannot be configured."""
    public: tuple[str, ...] = ()
    """The addresses of the host that are not in a private network."""
    open_files: int = 0
    """How many files a process may open at most, its hard limit; 0: no limit, or not known."""
    unit: str = ""
    """Why a unit of the user's systemd does not continue after a session; empty: it does."""
    skew_s: float = 0.0
    """Its clock less this host's, as far as the time of the answer shows it; 0: within that."""


Result = Checked | CockpitError
Reason = CockpitError | str


async def ask(hosts: Hosts, fleet: Fleet) -> dict[str, Result]:
    """By host: what it answered, or why it did not."""

    async def one(host: Host) -> Checked:
        began = time.time()
        agent = await fleet.agent(host)
        found = await agent.ask_for(Checked, "facts", {"address": host.address})
        took_s = time.time() - began
        skew_s = found.at_s - (began + took_s / 2)
        fields = {name: getattr(found, name) for name in Checked.__struct_fields__}
        return Checked(**fields | {"skew_s": skew_s if abs(skew_s) > took_s / 2 else 0.0})

    answers = await asyncio.gather(*map(one, hosts.hosts), return_exceptions=True)
    found: dict[str, Result] = {}
    for host, answer in zip(hosts.hosts, answers, strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, CockpitError):
            raise answer
        found[host.name] = answer
    return found


class Finding(Struct, frozen=True):
    """Something on a host that is not as a cluster needs it."""

    subject: str
    """One of SUBJECTS."""
    problem: str
    """As part of a sentence, after the name of the host."""
    fix: str = ""
    prevents: bool = True
    """Whether no pod can be started on the host."""


SUBJECTS = (
    *("ray", "address", "pods", "room", "gpus", "supervisor"),
    *("clock", "driver", "limits", "token", "ports"),
)


def findings(host: Host, found: Checked) -> Iterator[Finding]:
    """Yield what prevents a pod first. `token` and `ports` are known of pods that run."""
    version = _VERSION.match(found.ray)
    if not found.ray:
        fix = "install it there, or set python or venv in the file"
        yield Finding("ray", f"{host.python} has no Ray", fix)
    elif version is None or (int(version[1]), int(version[2])) < LEAST_RAY:
        least = ".".join(map(str, LEAST_RAY))
        problem = f"it has Ray {one_line(found.ray, 40)}, which has no token"
        yield Finding("ray", problem, f"install {least} or newer")
    if found.address:
        problem = f"Ray cannot listen at {host.address}: {one_line(found.address)}"
        yield Finding("address", problem, "set address to an IP address of the host")
    if found.others:
        problem = f"pod {one_line(found.others[0])} of another cluster runs at {host.address}"
        yield Finding("pods", problem, "delete that cluster, or use other hosts")
    used = 1 - found.disk_free_bytes / max(1, found.disk_bytes)
    if found.disk_free_bytes < FREE_BYTES or used > FULL:
        left, total = bytes_text(found.disk_free_bytes), bytes_text(found.disk_bytes)
        problem = f"its /tmp has {left} left of {total}: Ray starts no task there"
        yield Finding("room", problem, "remove files")
    if (host.gpus or 0) > len(found.gpus):
        problem = f"it has {len(found.gpus)} GPUs by nvidia-smi, and {host.gpus:g} are asked for"
        yield Finding("gpus", problem, "correct gpus in the file, or the host's driver")
    if host.is_unit and found.unit:
        fix = "run loginctl enable-linger there, or remove supervisor from the file"
        yield Finding("supervisor", one_line(found.unit), fix)
    if abs(found.skew_s) > SKEW_S:
        problem = (
            f"its clock differs by {in_seconds(abs(found.skew_s), 0)}: "
            "the phases of a recovery will be wrong"
        )
        yield Finding("clock", problem, "run NTP on it", prevents=False)
    for text in found.problems:
        yield Finding("driver" if "nvidia" in text else "room", one_line(text), prevents=False)
    if 0 < found.open_files < OPEN_FILES:
        problem = f"a process may open {found.open_files} files only"
        fix = f"raise nofile to {OPEN_FILES} or more in its /etc/security/limits.conf"
        yield Finding("limits", problem, fix, prevents=False)
    if found.tokenless:
        names = one_line(", ".join(found.tokenless), 80)
        fix = "start the cluster again: cockpit down, then cockpit up"
        yield Finding("token", f"processes without Ray's token: {names}", fix, prevents=False)
    if open_ports := sorted({*found.open_ports} & {*found.private_ports}):
        problem = f"Ray's port {open_ports[0]} is open at all addresses, not at {host.address} only"
        yield Finding("ports", problem, "close it in the host's packet filter", prevents=False)


def unfit(host: Host, found: Checked) -> str:
    """Why no pod can be started on the host, and what to do; empty: it can."""
    for one in findings(host, found):
        if one.prevents:
            return ": ".join(filter(None, (one.problem, one.fix)))
    return ""


def warnings(host: Host, found: Checked) -> Iterator[str]:
    """What does not prevent a pod."""
    for one in findings(host, found):
        if not one.prevents:
            fix = f" To fix it, {one.fix}." if one.fix else ""
            yield f"host {host.name}: {one.problem}.{fix}"


def different_versions(checked: dict[str, Checked]) -> str:
    """Which hosts have which versions, if Ray would refuse a node for it; else empty.

    Ray refuses a node with another version of Ray or of Python, also a patch of Python
    (`check_version_info`, Ray 2.60).
    """
    for what, versions in (
        ("Ray", {name: found.ray for name, found in checked.items()}),
        ("Python", {name: found.python for name, found in checked.items()}),
    ):
        if len(set(versions.values())) > 1:
            by_version: dict[str, list[str]] = {}
            for name, version in versions.items():
                by_version.setdefault(version, []).append(name)
            return "; ".join(
                f"{what} {one_line(version, 40)}: {', '.join(names)}"
                for version, names in sorted(by_version.items())
            )
    return ""


async def require(
    hosts: Hosts, fleet: Fleet, progress: Callable[[str], None], *, head_alone: bool = False
) -> dict[str, Checked]:
    """By host; raises CockpitError that names each host on which no pod can be started.

    `head_alone`: the cluster is there, and others than the head's host are reported only.
    """
    checked: dict[str, Checked] = {}
    wrong: dict[str, Reason] = {}
    for name, answer in (await ask(hosts, fleet)).items():
        host = hosts.named(name)
        if isinstance(answer, CockpitError):
            wrong[name] = answer
            continue
        checked[name] = answer
        if reason := unfit(host, answer):
            wrong[name] = reason
        for warning in warnings(host, answer):
            progress(f"Warning: {warning}")
    if head_alone and hosts.head.name not in wrong:
        for name, why in wrong.items():
            progress(f"Warning: host {name} is not used: {_reason(why)}")
        return {name: found for name, found in checked.items() if name not in wrong}
    if wrong:
        raise _refusal(hosts, wrong)
    if versions := different_versions(checked):
        raise CockpitError(
            "The hosts have different versions of Ray or Python.",
            versions,
            "Install the same versions on all of them, or set venv to where they are.",
        )
    return checked


def _refusal(hosts: Hosts, wrong: dict[str, Reason]) -> CockpitError:
    if len(wrong) == 1 and isinstance(error := next(iter(wrong.values())), CockpitError):
        return error
    return CockpitError(
        f"{len(wrong)} of {plural(len(hosts.hosts), 'host')} cannot be used.",
        "; ".join(f"{name}: {_reason(why)}" for name, why in wrong.items()),
        f"Fix them, or remove them from {hosts.path}.",
    )


def _reason(why: Reason) -> str:
    if isinstance(why, str):
        return one_line(why)
    return one_line(" ".join(filter(None, (why.what, why.why))))
