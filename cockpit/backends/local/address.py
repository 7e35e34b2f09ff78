"""Loopback addresses and ports that no other process on the host uses.

On Linux all of 127.0.0.0/8 is the host itself, so every pod gets its own address without set-up or
privileges.
"""

from __future__ import annotations

import errno
import os
import pwd
import secrets
import socket
import struct
from collections.abc import Collection, Iterator
from pathlib import Path

from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError

PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral ports (32768–60999), above the well-known ones."""

PROC_NET = Path("/proc/net")
LISTENING = "0A"
"""The state in /proc/net/tcp (TCP_LISTEN in the kernel's net/tcp_states.h)."""
_MAPPED = bytes(10) + b"\xff\xff"
"""The first 12 bytes of an IPv4 address as IPv6 has it (RFC 4291, 2.5.5.2)."""
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
    """Return the next address for a worker. `used`: those of all pods so far, the oldest first.

    A replacement does not reuse the address of the dead pod while another is free, since Ray keeps
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


def require_own_listener(host: str, port: int, what: str) -> None:
    """Check that only this user's processes listen on the IPv4 address `host` at `port`.

    Any user of this host may bind a loopback address on which nothing listens, so this is checked
    before a secret is sent. `what` is the secret, for the error. Raises NotAllowedError when
    another user listens, UnreachableError when nothing does.
    """
    exact = socket.inet_aton(host)
    listeners = [(address, uid) for address, at, uid in _listeners() if at == port]
    # The kernel prefers a socket bound to the address over one bound to all addresses.
    owners = {uid for address, uid in listeners if address == exact} or {
        uid for address, uid in listeners if not any(address)
    }
    if not owners:
        raise UnreachableError(f"Nothing listens at {host}:{port}.", f"{what} was not sent.")
    for uid in owners - {os.geteuid()}:
        raise NotAllowedError(
            f"{what} was not sent to {host}:{port}.",
            f"{_user(uid)} listens there, not you: the head is down and its port was taken.",
            "Remove the cluster and start it again: cockpit local down; cockpit local up",
        )


def _listeners() -> Iterator[tuple[bytes, int, int]]:
    """Address (4 bytes; zeros: all), port and owner's uid of every listening socket that IPv4
    connections reach.
    """
    for name in ("tcp", "tcp6"):
        table = PROC_NET / name
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            address, port, state, uid = _row(line)
            if state == LISTENING and (
                len(address) == 4 or address.startswith(_MAPPED) or not any(address)
            ):
                yield address[-4:], port, uid


def _row(line: str) -> tuple[bytes, int, str, int]:
    """Local address, port, state and uid (proc_net_tcp.rst of the kernel)."""
    fields = line.split()
    digits, _, port = fields[1].partition(":")
    # Groups of four bytes, each printed as one number of this machine.
    terms = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    return struct.pack(f"={len(terms)}I", *terms), int(port, 16), fields[3], int(fields[7])


def _user(uid: int) -> str:
    try:
        return f"User {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"The user with id {uid}"


def _networks_in_use() -> set[str]:
    """From /proc/net/tcp, which shows the local address of every IPv4 socket in hexadecimal."""
    networks: set[str] = set()
    for line in (PROC_NET / "tcp").read_text().splitlines()[1:]:
        networks.add(socket.inet_ntoa(_row(line)[0]).rpartition(".")[0])
    return networks
