"""The network between ranks, and its settings for NCCL and gloo."""

from __future__ import annotations

import socket

from training.stop import Stop
from training.techniques.settings import NetworkSettings

ALGORITHMS = {
    "ring": "allreduce:ring",
    "tree": "allreduce:tree",
    "nvls": "allreduce:nvls",
    "collnet": "allreduce:collnetdirect,collnetchain",
}
"""For all-reduce only: NCCL ends with an error if an algorithm does not support a collective, and
most of them support no other (NCCL's user guide, NCCL_ALGO).
"""


def variables(settings: NetworkSettings) -> dict[str, str]:
    """Variables of a rank's process before it communicates; none for default settings."""
    found: dict[str, str] = {}
    if settings.interface:
        found["NCCL_SOCKET_IFNAME"] = f"={settings.interface}"  # =: the exact name, not a prefix
        found["GLOO_SOCKET_IFNAME"] = settings.interface
    if settings.infiniband != "auto":
        found["NCCL_IB_DISABLE"] = {"on": "0", "off": "1"}[settings.infiniband]
    if settings.nccl_algorithm != "auto":
        found["NCCL_ALGO"] = ALGORITHMS[settings.nccl_algorithm]
    if settings.nccl_debug != "auto":
        found["NCCL_DEBUG"] = settings.nccl_debug.upper()
    return found


class NoInterface(Stop):
    """The requested network interface does not exist."""


def interfaces() -> list[str]:
    """Of this host."""
    return [name for _, name in socket.if_nameindex()]


def check(interface: str, there: list[str], host: str = "") -> None:
    """Raises NoInterface if the host has none of that name; '' is any."""
    if interface and interface not in there:
        raise NoInterface(
            f"{host or socket.gethostname()} has no network interface {interface}: "
            f"give interface one of {', '.join(there)}, or none"
        )
