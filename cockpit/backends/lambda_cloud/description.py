"""The TOML description of a cluster with instances of Lambda Cloud. docs/cloud.md has the format.

It is that of hosts (`cockpit.backends.ssh.description`) with three tables more: `lambda`,
`instances` and `spending`. So a head on-premises can have workers in the cloud.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from cockpit.backends.lambda_cloud import state
from cockpit.backends.lambda_cloud.limits import Spending
from cockpit.backends.ssh import description
from cockpit.backends.ssh.description import HEAD_GROUP, Hosts
from cockpit.config.toml_reader import Reader
from cockpit.model.error import UnreachableError, UsageError
from cockpit.model.text import one_line

RAY = "2.60.0"
PACKAGES = (f"ray[default,train,tune]=={RAY}", "torch", "torchvision", "nvidia-ml-py")
"""What the bundled jobs import, in the versions of constraints.txt."""
MAX_INSTANCES = 64
_OURS = ("lambda", "instances", "spending")
_LAMBDA = (
    *("region", "ssh_key", "user", "port", "image", "file_system", "allow_ssh_from"),
    *("python", "packages", "api_key_file"),
)
_INSTANCES = ("head", "group", "type", "count", "max_per_hour")
_SPENDING = ("max_per_hour", "max_total", "confirm_above", "idle_minutes", "when_idle")
_API_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TABLE = re.compile(r"^[ \t]*\[+[ \t]*([A-Za-z0-9_\"-]+)")
_SSH_CONFIG = re.compile(r"^[ \t]*ssh_config[ \t]*=")


class Wanted(Struct, frozen=True):
    """One instance of the description."""

    name: str
    """The host's name: `head`, or its group and a number."""
    group: str
    type: str
    max_cents: int | None = None
    """The highest price of an hour."""


class Cloud(Struct, frozen=True):
    path: str
    """The absolute path of the file."""
    text: str
    cluster: str
    regions: tuple[str, ...]
    """In the order of preference; all instances are in one."""
    wanted: tuple[Wanted, ...]
    spending: Spending
    ssh_key: str
    """The file of the private key; its public key is in FILE.pub."""
    user: str = "ubuntu"
    port: int = 22
    image: str = ""
    file_system: str = ""
    allow_ssh_from: tuple[str, ...] = ()
    """Networks; empty: the account's own firewall rules apply."""
    python: str = ""
    """The interpreter that the image has; empty: a virtual environment is made."""
    packages: tuple[str, ...] = PACKAGES
    api_key_file: str = ""

    @property
    def venv(self) -> str:
        home = "/root" if self.user == "root" else f"/home/{self.user}"
        return f"{home}/cockpit-venv"

    @property
    def interpreter(self) -> str:
        return self.python or f"{self.venv}/bin/python"


class Placed(Struct, frozen=True):
    """An instance as a host of the cluster."""

    name: str
    address: str
    cpus: int
    gpus: int


def read(path: str) -> Cloud:
    """Read and validate the file. Raises UsageError with the line, and what to write instead."""
    place = Path(path).expanduser().absolute()
    try:
        text = place.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"The description of the cluster in {path} cannot be read.",
            error.strerror or str(error),
            "An example: cockpit manifests show vm/lambda.toml > cluster.toml",
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8.") from error
    return parse(text, place)


def hosts_of(path: str) -> Hosts:
    """The hosts of `--hosts FILE`, which may be a file of this format. Raises CockpitError."""
    place = Path(path).expanduser().absolute()
    try:
        instances = re.search(r"(?m)^[ \t]*\[\[[ \t]*instances", place.read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        instances = None  # reported below
    if instances is None:
        return description.read(path)
    written = state.folder(read(path).cluster) / "hosts.toml"
    if not written.exists():
        raise UnreachableError(
            f"The instances of {path} are not up.",
            "",
            f"Start them: cockpit up --on lambda {path}",
        )
    return description.read(str(written))


def parse(text: str, path: Path) -> Cloud:
    reader = Reader(str(path), text)
    top = reader.tables
    if "instances" not in top:
        raise UsageError(
            f"{path} describes no instances of Lambda Cloud.",
            "It has no table [[instances]].",
            f"For the hosts in it: cockpit up --on hosts {path}",
        )
    cloud = _table(reader, "lambda", _LAMBDA)
    wanted = _wanted(reader)
    key = reader.text(cloud, ("lambda",), "ssh_key")
    if not key:
        raise reader.wrong(
            ("lambda",), "ssh_key is missing.", "", 'Write ssh_key = "~/.ssh/id_ed25519".'
        )
    read = Cloud(
        str(path),
        text,
        reader.text(top, (), "cluster", "lambda"),
        _fitting(reader, cloud, "region", "a region of Lambda Cloud"),
        wanted,
        _spending(reader),
        str(path.parent / Path(key).expanduser()),
        port=reader.whole(cloud, ("lambda",), "port", 22) or 22,
        user=reader.text(cloud, ("lambda",), "user", "ubuntu"),
        image="".join(_fitting(reader, cloud, "image", "a family of images")[:1]),
        file_system="".join(_fitting(reader, cloud, "file_system", "a file system")[:1]),
        allow_ssh_from=_networks(reader, cloud),
        python=reader.text(cloud, ("lambda",), "python"),
        packages=description.packages(reader, cloud, ("lambda",), PACKAGES),
        api_key_file=reader.text(cloud, ("lambda",), "api_key_file"),
    )
    if not read.regions:
        raise reader.wrong(("lambda",), "region is missing.", "", 'Write region = "us-east-1".')
    # Names, groups, replicas and the hosts on-premises: as the backend `ssh` checks them.
    described = description.parse(hosts_text(read, _placeholders(read)), path)
    _require_free(reader, described, wanted)
    return read


def hosts(cloud: Cloud, placed: list[Placed], path: Path, ssh_config: Path) -> tuple[str, Hosts]:
    """The text for the backend `ssh` at `path`, and what it describes."""
    text = f"ssh_config = {json.dumps(str(ssh_config))}\n{hosts_text(cloud, placed)}"
    return text, description.parse(text, path)


def hosts_text(cloud: Cloud, placed: list[Placed]) -> str:
    """The description of hosts: the file's own, line by line, and after it the instances."""
    lines, ours, top = [], False, True
    for line in cloud.text.splitlines():
        if header := _TABLE.match(line):
            ours, top = header[1].strip('"') in _OURS, False
        lines.append("" if ours or (top and _SSH_CONFIG.match(line)) else line)
    by_name = {one.name: one for one in placed}
    for wanted in cloud.wanted:
        if wanted.name not in by_name:
            continue
        one = by_name[wanted.name]
        lines += ["[[host]]", f'name = "{wanted.name}"', f'address = "{one.address}"']
        lines += [f'ssh = "{alias(cloud.cluster, wanted.name)}"', f"gpus = {one.gpus}"]
        lines += [f'type = "{wanted.type}"']
        lines += [f"user = {json.dumps(cloud.user)}", f"port = {cloud.port}"]
        lines += [f"python = {json.dumps(cloud.interpreter)}"]
        head = wanted.group == HEAD_GROUP
        # As on other hosts, the head offers no CPUs.
        lines += ["head = true"] if head else [f'group = "{wanted.group}"', f"cpus = {one.cpus}"]
    return "\n".join(lines) + "\n"


def own_ssh_config(cloud: Cloud) -> str:
    """The `ssh_config` of the file, for the hosts on-premises; empty: the user's."""
    found = Reader(cloud.path, cloud.text).tables.get("ssh_config", "")
    return str(Path(cloud.path).parent / Path(found).expanduser()) if found else ""


def alias(cluster: str, name: str) -> str:
    """The name of an instance in the ssh configuration."""
    return f"{cluster}.{name}.cockpit"


def _placeholders(cloud: Cloud) -> list[Placed]:
    # Addresses for documentation (RFC 3849), which no host has.
    return [Placed(one.name, f"2001:db8::{at:x}", 1, 0) for at, one in enumerate(cloud.wanted, 1)]


def _require_free(reader: Reader, described: Hosts, wanted: tuple[Wanted, ...]) -> None:
    if len(described.hosts) > description.MAX_HOSTS:
        raise reader.wrong(("instances",), f"a cluster has at most {description.MAX_HOSTS} hosts.")
    if not any(one.group == HEAD_GROUP for one in wanted) and described.head.address in (
        "127.0.0.1",
        "::1",
    ):
        raise reader.wrong(
            ("host",),
            "the head listens at a loopback address.",
            "Instances in the cloud cannot reach it.",
            "Write its address in the network that they share.",
        )


def _table(reader: Reader, name: str, keys: tuple[str, ...]) -> Mapping[str, Any]:
    table = reader.tables.get(name, {})
    if not isinstance(table, dict):
        raise reader.wrong((name,), f"{name} is a table: [{name}].")
    reader.known(table, (name,), keys, f"[{name}]")
    return table


def _wanted(reader: Reader) -> tuple[Wanted, ...]:
    found: list[Wanted] = []
    for number, table in enumerate(reader.tables_of(reader.tables, (), "instances")):
        at = ("instances", number)
        reader.known(table, at, _INSTANCES, "[[instances]]")
        kind = reader.text(table, at, "type")
        if not _API_NAME.fullmatch(kind):
            raise reader.wrong(
                (*at, "type"),
                f"type is {one_line(kind, 60)!r}." if kind else "type is missing.",
                "It is the name of an instance type, such as gpu_1x_a10.",
                "cockpit plan --on lambda FILE lists them in its error.",
            )
        head = reader.truth(table, at, "head")
        count = reader.whole(table, at, "count", 1) or 0
        if head and (count != 1 or "group" in table):
            raise reader.wrong(at, "the head is one instance, and has no group.")
        if not 0 < count <= MAX_INSTANCES:
            raise reader.wrong(
                (*at, "count"), f"count is {count}.", f"It is a number from 1 to {MAX_INSTANCES}."
            )
        group = HEAD_GROUP if head else reader.text(table, at, "group", description.WORKERS)
        before = sum(one.group == group for one in found)
        cents = _cents(reader, table, at, "max_per_hour")
        for each in range(before + 1, before + count + 1):
            found.append(Wanted("head" if head else f"{group}-{each}", group, kind, cents))
    if len(found) > MAX_INSTANCES:
        raise reader.wrong(
            ("instances",), f"it asks for {len(found)} instances.", f"At most: {MAX_INSTANCES}."
        )
    return tuple(found)


def _spending(reader: Reader) -> Spending:
    table = _table(reader, "spending", _SPENDING)
    at = ("spending",)
    when = reader.text(table, at, "when_idle", "ask")
    if when not in ("ask", "end"):
        raise reader.wrong(
            (*at, "when_idle"), f"when_idle is {one_line(when, 40)!r}.", "It is ask or end."
        )
    minutes = reader.number(table, at, "idle_minutes")
    return Spending(
        _cents(reader, table, at, "max_per_hour"),
        _cents(reader, table, at, "max_total"),
        _cents(reader, table, at, "confirm_above") or 0,
        None if minutes is None else minutes * 60,
        when == "end",
    )


def _cents(
    reader: Reader, table: Mapping[str, Any], at: tuple[str | int, ...], key: str
) -> int | None:
    """Dollars in the file."""
    dollars = reader.number(table, at, key)
    return None if dollars is None else round(dollars * 100)


def _fitting(reader: Reader, table: Mapping[str, Any], key: str, what: str) -> tuple[str, ...]:
    found = reader.texts(table, ("lambda",), key)
    for name in found:
        if not _API_NAME.fullmatch(name):
            raise reader.wrong(
                ("lambda", key), f"{key} is {one_line(name, 60)!r}.", f"It is the name of {what}."
            )
    return found


def _networks(reader: Reader, table: Mapping[str, Any]) -> tuple[str, ...]:
    found = reader.texts(table, ("lambda",), "allow_ssh_from")
    for network in found:
        try:
            ipaddress.IPv4Network(network)
        except ValueError:
            raise reader.wrong(
                ("lambda", "allow_ssh_from"),
                f"allow_ssh_from has {one_line(network, 60)!r}.",
                "It is an IPv4 network, such as 203.0.113.7/32.",
            ) from None
    return found
