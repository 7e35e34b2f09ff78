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
    told: dict[str, str] = {}
    if settings.interface:
        told["NCCL_SOCKET_IFNAME"] = f"={settings.interface}"  # =: the exact name, not a prefix
        told["GLOO_SOCKET_IFNAME"] = settings.interface
    if settings.infiniband != "auto":
        told["NCCL_IB_DISABLE"] = {"on": "0", "off": "1"}[settings.infiniband]
    if settings.nccl_algorithm != "auto":
        told["NCCL_ALGO"] = ALGORITHMS[settings.nccl_algorithm]
    if settings.nccl_debug != "auto":
        told["NCCL_DEBUG"] = settings.nccl_debug.upper()
    return told


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
