"""Drop, delay or limit the traffic of this pod, for a limited time.

    network.py check KIND
    network.py on NAME KIND AMOUNT SECONDS [PEER…]
    network.py off NAME [refuse]

KIND is `partition`, `loss` (AMOUNT percent), `delay` (AMOUNT milliseconds) or `rate` (AMOUNT
kilobits a second). The first two drop packets to and from the PEERs, by nftables; the others change
all packets that the pod sends, by tc. All rules are in a separate table or queueing discipline,
which a background process removes after SECONDS. If the kernel has no netem, another process delays
the packets (`packet_delay.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from cockpit.drills.pod_scripts.linux.packet_delay import LOOK_S, forward, redirect, tap
from cockpit.drills.pod_scripts.linux.process import Failed, ended, has_capability, leave_behind
from cockpit.drills.pod_scripts.marker import claim, marker, refuse

NET_ADMIN = 12
"""Its bit of a process's capabilities (linux/capability.h)."""
CHECKED = "c0ccheck"
"""The tap device that is tried before a fault."""
PROGRAMS = {"partition": "nft", "loss": "nft", "delay": "tc", "rate": "tc"}


def check(kind: str) -> bool:
    """Whether a process has to delay the packets, since the kernel cannot."""
    if os.environ.get("COCKPIT_LOCAL_POD"):
        raise Failed("this pod shares the network of its host")
    if not has_capability(NET_ADMIN):
        raise PermissionError("the container lacks the capability NET_ADMIN")
    if not has_program(PROGRAMS[kind]):
        raise Failed(f"the image has no program {PROGRAMS[kind]}")
    if kind != "delay" or has_netem():
        return False
    try:
        taken = tap(CHECKED)
    except OSError as error:
        raise Failed(
            f"the kernel cannot delay packets (sch_netem), nor a process ({error})"
        ) from None
    try:
        for command in redirect(CHECKED, "lo"):
            must(run(*command))
    finally:
        os.close(taken)
    return True


def has_netem() -> bool:
    if run("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms").returncode:
        return False
    run("tc", "qdisc", "del", "dev", "lo", "root")
    return True


def on(name: str, kind: str, amount: float, seconds: float, peers: Sequence[str]) -> None:
    by_process = check(kind)
    claim(marker(name))
    taken = None
    if kind in ("partition", "loss"):
        rules = [f"table inet {name} {{"]
        for chain, way in (("input", "saddr"), ("output", "daddr")):
            rules.append(f"chain {chain} {{ type filter hook {chain} priority 0; policy accept;")
            chance = "" if kind == "partition" else f"numgen random mod 100 < {int(amount)} "
            for peer in peers:
                family = "ip6" if ":" in peer else "ip"
                rules.append(f"{family} {way} {peer} {chance}drop;")
            rules.append("}")
        must(run("nft", "-f", "-", text="\n".join([*rules, "}"])))
    elif by_process:
        taken = tap(tap_of(name))
        add_qdisc, add_filter = redirect(device(), tap_of(name))
        must(run(*add_qdisc))
        if (done := run(*add_filter)).returncode:
            run("tc", "qdisc", "del", "dev", device(), "clsact")
            must(done)
    else:
        shape = {
            "delay": ("netem", "delay", f"{amount:g}ms"),
            "rate": ("tbf", "rate", f"{amount:g}kbit", "burst", "32kbit", "latency", "400ms"),
        }[kind]
        must(run("tc", "qdisc", "add", "dev", device(), "root", "handle", handle_of(name), *shape))
    print(f"{kind} for {seconds:g} s")
    if leave_behind():
        return
    ends = time.monotonic() + seconds

    def goes_on() -> bool:
        return time.monotonic() < ends and marker(name).exists()

    forwarder = os.fork() if taken is not None else None
    if taken is not None and forwarder == 0:
        forward(taken, device(), amount / 1000, goes_on)
        return
    while goes_on() and (not forwarder or os.waitpid(forwarder, os.WNOHANG) == (0, 0)):
        time.sleep(LOOK_S)
    off(name)


def off(name: str, never: bool = False) -> None:
    """Also when it is off already, and of this fault alone. With `never` it may not begin later."""
    has_no_marker = never and refuse(marker(name))
    # Without a marker too: that ends with the container, and the rules with the pod.
    if has_program("nft"):
        run("nft", "delete", "table", "inet", name)
    if has_program("tc"):
        delete_qdisc("root", lambda: f" {handle_of(name)} root" in shown("qdisc", device()))
        delete_qdisc("clsact", lambda: tap_of(name) in shown("filter", device(), "egress"))
    if not has_no_marker:
        marker(name).unlink(missing_ok=True)


def delete_qdisc(which: str, is_there: Callable[[], bool]) -> None:
    """The fault's process and an undo may delete it at the same time: one of them fails."""
    if is_there():
        done = run("tc", "qdisc", "del", "dev", device(), which)
        if done.returncode and is_there():
            must(done)


def shown(what: str, *of: str) -> str:
    return run("tc", what, "show", "dev", *of).stdout


def handle_of(name: str) -> str:
    """Of the fault's queueing discipline: another's is never removed."""
    return f"{zlib.crc32(name.encode()) & 0x7FFF | 0x1000:x}:"


def tap_of(name: str) -> str:
    """The fault's tap device."""
    return f"c0c{zlib.crc32(name.encode()):08x}"


def device() -> str:
    """The interface of the default route."""
    for line in Path("/proc/net/route").read_text(encoding="ascii").splitlines():
        name, destination = line.split()[:2]
        if destination == "00000000":
            return name
    return "eth0"


def has_program(name: str) -> bool:
    """An image may have only the one that the fault needs."""
    return shutil.which(name, path=path()) is not None


def run(*argv: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PATH=path())
    return subprocess.run(
        argv, input=text, capture_output=True, text=True, env=environment, check=False
    )


def must(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise Failed(reason(done))


def reason(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[-1] if lines else "no reason given"


def path() -> str:
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def main() -> None:
    verb, name, *rest = sys.argv[1:]
    if verb == "check":
        check(name)
    elif verb == "on":
        on(name, rest[0], float(rest[1]), float(rest[2]), rest[3:])
    else:
        off(name, "refuse" in rest)


sys.exit(ended(main))
