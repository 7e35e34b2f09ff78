"""The nodes of a running Ray cluster as a description of hosts, for `cockpit up --on hosts`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cockpit.backends.ssh.description import MAX_HOSTS, WORKERS, ip_address
from cockpit.format import plural
from cockpit.model.cluster import Node
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

NAME_CHARS = 40
_FOREIGN = re.compile(r"[^a-z0-9.-]+")


def text(nodes: Sequence[Node], cluster: str) -> str:
    """TOML with the nodes that are alive. Raises UsageError if they cannot be used as hosts."""
    alive = [node for node in nodes if node.alive]
    _require_hosts(alive)
    names: set[str] = set()
    lines = [f'cluster = "{cluster}"', "# user, port, venv or python: see docs/hosts.md"]
    for node in alive:
        name = _name(node, names)
        names.add(name)
        lines += ["", "[[host]]", f'name = "{name}"', f'address = "{node.ip}"', *_offers(node)]
    return "\n".join(lines) + "\n"


def _require_hosts(alive: Sequence[Node]) -> None:
    heads = sum(node.is_head for node in alive)
    if heads != 1:
        raise UsageError(f"Ray lists {plural(heads, 'living head')}, not one.")
    if len(alive) > MAX_HOSTS:
        raise UsageError(f"The cluster has {len(alive)} nodes, and a file at most {MAX_HOSTS}.")
    for node in alive:
        try:
            ip_address(node.ip)
        except ValueError:
            raise UsageError(
                f"The address of a Ray node, {one_line(node.ip, 60)!r}, is no IP address."
            ) from None
    addresses = [node.ip for node in alive]
    if twice := sorted({ip for ip in addresses if addresses.count(ip) > 1}):
        raise UsageError(
            f"Several Ray nodes have the address {twice[0]}.",
            "A host of a cluster on hosts has one Ray node.",
        )


def _name(node: Node, taken: set[str]) -> str:
    """The host's name without its domain, or its address if that is taken or cannot be a name."""
    short = _FOREIGN.sub("-", node.hostname.lower().partition(".")[0])[:NAME_CHARS].strip(".-")
    if short and short not in taken:
        return short
    return _FOREIGN.sub("-", node.ip.lower()).strip(".-")


def _offers(node: Node) -> Iterator[str]:
    cpus, gpus = node.resources.get("CPU", 0.0), node.resources.get("GPU", 0.0)
    if node.is_head:
        yield "head = true"
    else:
        yield f'group = "{WORKERS}"'
    # A head offers none of both by default.
    if cpus or not node.is_head:
        yield f"cpus = {cpus:g}"
    if gpus:
        yield f"gpus = {gpus:g}"
