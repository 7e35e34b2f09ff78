"""Delay the packets that leave an interface, if the kernel cannot (no sch_netem).

tc redirects each frame to a tap device, from which a process reads it and, after the delay, sends
it past the queueing disciplines. When that process ends, the device is removed and redirected
frames are lost: so another process watches it.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TUN = "/dev/net/tun"
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
SIOCSIFMTU, SIOCSIFTXQLEN, SIOCSIFFLAGS, IFF_UP = 0x8922, 0x8943, 0x8914, 0x1
SOL_PACKET, PACKET_QDISC_BYPASS = 263, 20
"""linux/if_tun.h, linux/sockios.h, linux/if_packet.h."""
MOST_DELAYED = 50_000
"""The maximum number of frames; further ones are dropped, as in a full queue."""
MTU, QUEUED = 65_521, 10_000
"""Of the tap device: the most that it takes, and frames until they are read."""
LOOK_S = 0.2


def tap(name: str) -> int:
    """A new tap device of this name, up; it is removed with the file descriptor. OSError."""
    if Path(TUN).exists():
        made = os.open(TUN, os.O_RDWR)
    else:  # in a container, where the device may be used but is not there
        node = Path(f"/dev/.cockpit-tun-{os.getpid()}")
        os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(10, 200))
        try:
            made = os.open(node, os.O_RDWR)
        finally:
            node.unlink()
    try:
        fcntl.ioctl(made, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            for what, value in ((SIOCSIFMTU, MTU), (SIOCSIFTXQLEN, QUEUED), (SIOCSIFFLAGS, IFF_UP)):
                fcntl.ioctl(asked, what, struct.pack("16si20x", name.encode(), value))
    except OSError:
        os.close(made)
        raise
    os.set_blocking(made, False)
    return made


def redirect(device: str, to: str) -> tuple[tuple[str, ...], ...]:
    """The commands that redirect what leaves `device` to another one."""
    return (
        ("tc", "qdisc", "add", "dev", device, "clsact"),
        (
            *("tc", "filter", "add", "dev", device, "egress", "protocol", "all", "u32"),
            *("match", "u32", "0", "0", "action", "mirred", "egress", "redirect", "dev", to),
        ),
    )


def forward(taken: int, device: str, delay_s: float, goes_on: Callable[[], bool]) -> None:
    """Send each redirected frame `delay_s` after its arrival, and at the end the remaining ones."""
    own = bytes.fromhex(Path(f"/sys/class/net/{device}/address").read_text().replace(":", ""))
    delayed: deque[tuple[float, bytes]] = deque()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as out:
        out.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
        out.bind((device, 0))
        check_s = 0.0
        while True:
            now_s = time.monotonic()
            while delayed and delayed[0][0] <= now_s:
                _send(out, delayed.popleft()[1])
            if now_s >= check_s:
                if not goes_on():
                    break
                check_s = now_s + LOOK_S
            until_s = min(check_s, delayed[0][0]) if delayed else check_s
            if not select.select([taken], [], [], max(0.0, until_s - now_s))[0]:
                continue
            for frame in _frames(taken):
                # Packets of the tap device itself, as of IPv6, are not to leave.
                if frame[6:12] == own and len(delayed) < MOST_DELAYED:
                    delayed.append((time.monotonic() + delay_s, frame))
        for _, frame in delayed:
            _send(out, frame)


def _frames(taken: int, most: int = 64) -> list[bytes]:
    found = []
    for _ in range(most):
        try:
            found.append(os.read(taken, 1 << 16))
        except BlockingIOError:
            break
    return found


def _send(out: socket.socket, frame: bytes) -> None:
    # A queue that is full, an interface that is down: lost, as it would be without us.
    with suppress(OSError):
        out.send(frame)
