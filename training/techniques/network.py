"""The network that ranks speak over, and what NCCL and gloo are told of it."""

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
"""Of an all-reduce only: NCCL ends with an error where an algorithm cannot do what is asked for,
and most of them can do nothing else (NCCL's user guide, NCCL_ALGO)."""


def variables(settings: NetworkSettings) -> dict[str, str]:
    """For a rank's process before it has spoken; none for settings as they are by default."""
    told: dict[str, str] = {}
    if settings.interface:
        told["NCCL_SOCKET_IFNAME"] = f"={settings.interface}"  # =: not all that begin like it
        told["GLOO_SOCKET_IFNAME"] = settings.interface
    if settings.infiniband != "auto":
        told["NCCL_IB_DISABLE"] = {"on": "0", "off": "1"}[settings.infiniband]
    if settings.nccl_algorithm != "auto":
        told["NCCL_ALGO"] = ALGORITHMS[settings.nccl_algorithm]
    if settings.nccl_debug != "auto":
        told["NCCL_DEBUG"] = settings.nccl_debug.upper()
    return told


class NoInterface(Stop):
    """The network interface that was asked for is not there."""


def interfaces() -> list[str]:
    """Of this host."""
    return [name for _, name in socket.if_nameindex()]


def check(interface: str, there: list[str], host: str = "") -> None:
    """Raises NoInterface when a host has none of that name; '' is any."""
    if interface and interface not in there:
        raise NoInterface(
            f"{host or socket.gethostname()} has no network interface {interface}: "
            f"give interface one of {', '.join(there)}, or none"
        )
