"""The TOML description of a cluster's hosts. docs/hosts.md has the format."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, json

from cockpit.config.toml_reader import Reader
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

DEFAULT_NAME = "hosts"
HEAD_GROUP = "headgroup"
"""KubeRay's name for the head's group."""
WORKERS = "workers"
MAX_HOSTS = 256
SUPERVISORS = ("process", "systemd")
"""What a pod is on its host."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?")
_DESTINATION = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
"""Not beginning with a hyphen: ssh would take it as an option."""
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,15}")
"""The name of a network interface, after the `%` of an IPv6 address."""
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@\\-]*\$?")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\[\],=<>!~+-]*")
_SHARED = ("user", "port", "python", "venv", "packages", "supervisor")
"""Keys at the top that are the default of every host."""
_TOP = ("cluster", "ssh_config", *_SHARED, "replicas", "host")
_HOST = (
    *("name", "address", "ssh", "group", "head", "type", "cpus", "gpus", "object_store_bytes"),
    *_SHARED,
)


class Host(Struct, frozen=True):
    """One host. `None`: Ray detects it."""

    name: str
    address: str
    """Its IP address on the network that the hosts share, where Ray listens."""
    ssh: str
    """What ssh connects to: an address, or a name of the user's ssh configuration."""
    group: str
    user: str = ""
    port: int | None = None
    python: str = "python3"
    """The interpreter that has Ray."""
    cpus: float | None = None
    gpus: float | None = None
    object_store_bytes: int | None = None
    type: str = ""
    """The kind of host, as `[cost]` names its price; for people and for prices only."""
    is_unit: bool = False
    """Whether its pod is a unit of the user's systemd, not a process of the SSH session."""
    packages: tuple[str, ...] = ()
    """What `up` installs in the virtual environment of `python`, which it makes."""

    @property
    def is_head(self) -> bool:
        return self.group == HEAD_GROUP

    @property
    def fingerprint(self) -> str:
        """Differs after a change of the description of the host."""
        return hashlib.sha256(json.encode(self)).hexdigest()[:12]


class Hosts(Struct, frozen=True):
    """The description: a head and its workers."""

    path: str
    """The absolute path of the file."""
    cluster: str
    hosts: tuple[Host, ...]
    replicas: Mapping[str, int]
    """By worker group, how many Ray nodes `up` starts; the other hosts are spares."""
    ssh_config: str = ""
    """A file for `ssh -F`; empty: the user's configuration."""

    @property
    def head(self) -> Host:
        return next(host for host in self.hosts if host.is_head)

    def named(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def of_group(self, group: str) -> tuple[Host, ...]:
        return tuple(host for host in self.hosts if host.group == group)

    def of_pod(self, pod: str) -> Host:
        """The host of a pod, whose name is the host's and five characters. Raises UsageError."""
        for host in self.hosts:
            if pod.rpartition("-")[0] == host.name:
                return host
        raise UsageError(
            f"There is no pod {one_line(pod)!r} on the hosts of {self.path}.",
            "A pod is named HOST-XXXXX, after its host.",
            "cockpit pods lists them.",
        )


def read(path: str) -> Hosts:
    """Read and validate the file. Raises UsageError with the line, and what to write instead."""
    place = Path(path).expanduser().absolute()
    try:
        text = place.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"The description of the hosts in {path} cannot be read.",
            error.strerror or str(error),
            "Name the file with --hosts FILE. An example: cockpit manifests show vm/hosts.toml",
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8.") from error
    return parse(text, place)


def parse(text: str, path: Path) -> Hosts:
    """As `read`; paths in the text are relative to the file's directory."""
    reader = Reader(str(path), text)
    top = reader.tables
    reader.known(top, (), _TOP, "a description of hosts")
    tables = reader.tables_of(top, (), "host")
    if not 0 < len(tables) <= MAX_HOSTS:
        raise reader.wrong(
            ("host",),
            f"it describes {len(tables)} hosts.",
            f"A cluster has 1 to {MAX_HOSTS}.",
            'Add a table [[host]] with name = "…" and address = "…" for each host.',
        )
    hosts: list[Host] = []
    for number, table in enumerate(tables):
        host = _host(reader, table, ("host", number))
        for key in ("name", "address"):
            twin = next((h for h in hosts if getattr(h, key) == getattr(host, key)), None)
            if twin is not None:
                raise reader.wrong(
                    ("host", number, key),
                    f"two hosts have the {key} {getattr(host, key)!r}.",
                    "Each host is described once, with a name and an address of its own.",
                    "Change one of them, or remove the table.",
                )
        hosts.append(host)
    if sum(host.is_head for host in hosts) != 1:
        heads = ", ".join(host.name for host in hosts if host.is_head) or "none"
        raise reader.wrong(
            ("host",),
            "one host is the head.",
            f"Marked as head: {heads}.",
            "Write head = true in the table of exactly one host.",
        )
    ssh_config = reader.text(top, (), "ssh_config")
    return Hosts(
        str(path),
        _named(reader, top, (), "cluster", DEFAULT_NAME),
        tuple(hosts),
        _replicas(reader, hosts),
        str(path.parent / Path(ssh_config).expanduser()) if ssh_config else "",
    )


def _host(reader: Reader, table: Mapping[str, Any], at: tuple[str | int, ...]) -> Host:
    reader.known(table, at, _HOST, "a host")
    top = reader.tables
    name = _named(reader, table, at, "name", "")
    address = reader.text(table, at, "address")
    try:
        ip_address(address)
    except ValueError:
        raise reader.wrong(
            (*at, "address"),
            f"the address of host {name!r} is {one_line(address, 60)!r}.",
            "It is the IP address where the other hosts reach this one; Ray listens there.",
            'Write address = "10.0.0.11", and ssh = "NAME" if ssh connects to another name.',
        ) from None
    head = reader.truth(table, at, "head")
    if head and "group" in table:
        raise reader.wrong(
            (*at, "group"), "the head has no group.", "", "Remove group, or head = true."
        )
    place = (table, at) if "port" in table else (top, ())
    port = reader.whole(*place, "port")
    if port is not None and not 0 < port < 1 << 16:
        raise reader.wrong(
            (*place[1], "port"), f"port is {port}.", "It is a number from 1 to 65535."
        )

    def own(key: str, default: str = "") -> str:
        place = at if key in table else ()
        return reader.text(table if key in table else top, place, key, default)

    def fits(key: str, value: str, pattern: re.Pattern[str], what: str) -> str:
        if value and not pattern.fullmatch(value):
            place = (*at, key) if key in table else (key,)
            raise reader.wrong(place, f"{key} is {one_line(value, 60)!r}.", f"It is {what}.")
        return value

    venv = own("venv")
    if "venv" in table and "python" in table:
        raise reader.wrong(
            (*at, "venv"), f"host {name!r} has both python and venv.", "", "Keep one of them."
        )
    # The nearest of both: a host's `python` overrides the `venv` at the top.
    python = own("python", "python3")
    if venv and "python" not in table:
        python = f"{venv.rstrip('/')}/bin/python"
    place = (table, at) if "packages" in table else (top, ())
    wanted = packages(reader, *place)
    if "python" in table and "packages" not in table:
        wanted = ()
    if wanted and (not venv or "python" in table):
        raise reader.wrong(
            (*place[1], "packages"),
            f"host {name!r} has packages, and no venv.",
            "cockpit installs packages only in a virtual environment.",
            'Write venv = "/home/USER/ray", where the user may write.',
        )
    return Host(
        name,
        address,
        fits("ssh", reader.text(table, at, "ssh") or address, _DESTINATION, "a host name"),
        HEAD_GROUP if head else _named(reader, table, at, "group", WORKERS),
        user=fits("user", own("user"), _USER, "a user's name on the host"),
        port=port,
        python=python,
        cpus=reader.number(table, at, "cpus"),
        gpus=reader.number(table, at, "gpus"),
        object_store_bytes=reader.whole(table, at, "object_store_bytes"),
        type=one_line(reader.text(table, at, "type"), 60),
        is_unit=_is_unit(reader, *((table, at) if "supervisor" in table else (top, ()))),
        packages=wanted,
    )


def _is_unit(reader: Reader, table: Mapping[str, Any], at: tuple[str | int, ...]) -> bool:
    supervisor = reader.text(table, at, "supervisor", "process")
    if supervisor not in SUPERVISORS:
        raise reader.wrong(
            (*at, "supervisor"),
            f"supervisor is {one_line(supervisor, 60)!r}.",
            f"It is {' or '.join(SUPERVISORS)}.",
        )
    return supervisor == "systemd"


def packages(
    reader: Reader,
    table: Mapping[str, Any],
    at: tuple[str | int, ...],
    default: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """The requirements for pip. Raises UsageError for one that it would take as an option."""
    found = reader.texts(table, at, "packages") if "packages" in table else default
    for package in found:
        if not _PACKAGE.fullmatch(package):
            raise reader.wrong(
                (*at, "packages"),
                f"packages has {one_line(package, 60)!r}.",
                "It is a requirement of pip, such as numpy>=2.",
            )
    return found


def ip_address(text: str) -> str:
    """The IP address in its usual form. Raises ValueError.

    `ipaddress` takes any text as the zone of an IPv6 address, also line breaks and quotes.
    """
    found = ipaddress.ip_address(text)
    zone = found.scope_id if isinstance(found, ipaddress.IPv6Address) else None
    if zone is not None and not _ZONE.fullmatch(zone):
        raise ValueError("not the zone of an address")
    return str(found)


def _replicas(reader: Reader, hosts: list[Host]) -> dict[str, int]:
    there = {host.group: 0 for host in hosts if not host.is_head}
    for host in hosts:
        if not host.is_head:
            there[host.group] += 1
    table = reader.tables.get("replicas", {})
    if not isinstance(table, dict):
        raise reader.wrong(("replicas",), "replicas is a table: [replicas].")
    reader.known(table, ("replicas",), there, "replicas")
    wanted = {}
    for group, count in there.items():
        number = reader.whole(table, ("replicas",), group, count)
        wanted[group] = count if number is None else number
        if wanted[group] > count:
            raise reader.wrong(
                ("replicas", group),
                f"group {group} asks for {number} Ray nodes.",
                f"It has {count} hosts, and a host has one Ray node.",
                f"Write at most {count}, or add hosts to the group.",
            )
    return wanted


def _named(
    reader: Reader, table: Mapping[str, Any], at: tuple[str | int, ...], key: str, default: str
) -> str:
    name = reader.text(table, at, key, default)
    if not _NAME.fullmatch(name) or (key == "group" and name == HEAD_GROUP):
        raise reader.wrong(
            (*at, key),
            f"{key} is {one_line(name, 60)!r}." if key in table else f"{key} is missing.",
            "It takes 1 to 40 of a–z, 0–9, '-' and '.', and ends with a letter or digit.",
            f'Write {key} = "…".',
        )
    return name
