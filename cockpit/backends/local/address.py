"""Loopback addresses and ports that nobody else on the machine uses.

All of 127.0.0.0/8 is the machine itself on Linux, so every pod gets an address of its own with no
set-up and no privilege.
"""

from __future__ import annotations

import errno
import secrets
import socket
import struct
from collections.abc import Collection
from pathlib import Path

from cockpit.model.error import CockpitError

PORTS = range(20_000, 32_000)
"""Below the ports that Linux gives out by itself (32768–60999), above the well-known ones."""

_TRIES = 200


def choose_network() -> str:
    """Three octets, `127.X.Y`, under which nothing on this machine listens or talks now."""
    taken = _networks_in_use()
    for _ in range(_TRIES):
        network = f"127.{64 + secrets.randbelow(128)}.{secrets.randbelow(256)}"
        if network not in taken:
            return network
    raise CockpitError("No free loopback network was found.", f"{_TRIES} of 127.X.Y.0 are in use.")


def choose_address(network: str, used: Collection[str]) -> str:
    """The next address for a worker. `used`: those of all pods so far, the oldest first.

    A replacement never has the address of the one that died while another is free, since Ray keeps
    dead nodes in its list under their addresses.
    """
    workers = [f"{network}.{last}" for last in range(2, 255)]
    never = [address for address in workers if address not in used]
    if never:
        return never[0]
    newest = {address: place for place, address in enumerate(used)}
    return min(workers, key=lambda address: newest[address])


def choose_ports(count: int) -> list[int]:
    """Ports that can be bound on all interfaces now, since that is where Ray binds them."""
    chosen: list[int] = []
    for _ in range(_TRIES):
        port = PORTS.start + secrets.randbelow(len(PORTS))
        if port not in chosen and port_is_free(port):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise CockpitError("No free port was found.", f"{_TRIES} ports of {PORTS} were tried.")


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Ray's servers do: an old connection in TIME_WAIT does not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def _networks_in_use() -> set[str]:
    """From /proc/net/tcp, which shows the local address of every IPv4 socket in hexadecimal."""
    networks: set[str] = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        number = int(line.split()[1].partition(":")[0], 16)
        address = socket.inet_ntoa(struct.pack("=I", number))
        networks.add(address.rpartition(".")[0])
    return networks
