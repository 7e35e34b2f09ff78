"""Hosts for tests, as namespaces of this machine: each with its own sshd, name, network and disk.

A *network* is a namespace with a bridge; its hosts are namespaces inside it. When its first process
ends, the kernel ends everything in it and removes the devices and mounts, on this machine too.
Outside there is one folder. Each host has a network device, a process tree, a name, a /tmp of
DISK_BYTES and a /dev/shm of its own; the rest of the file system is this machine's, such as the
shared directory. Needs root.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.child_process import die_with_parent, only_child
from tests.sshd import Sshd, write_client_config

ROOT = Path(__file__).parents[1]
LINK = "ckh"
"""The network's device on this machine is LINK and a number, which chooses its addresses too."""
NETWORKS = 64
SSH_PORT = 22
DISK_BYTES = 3 << 30
SHM_BYTES = 1 << 30
ENDED_WITHIN_S = 30.0
_FIRST = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
print("up", flush=True)
while True:
    signal.sigwait([signal.SIGCHLD])
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                break
        except ChildProcessError:
            break
"""
"""The first process of a namespace: it reaps processes whose parent has ended, as any init."""


class Network:
    """A bridge for hosts, and this machine's device on it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cockpit-hosts-", dir="/var/tmp"))
        self.shared = self.folder / "shared"
        self.shared.mkdir()
        (self.folder / "repository").mkdir()
        self.hosts: list[HostSpace] = []
        self.number = _free_number()
        self._first = _Space([], ["--net", "--pid"])
        self.enter_network = ["nsenter", "-t", str(self._first.pid), "-n", "--"]
        link = f"{LINK}{self.number}"
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "outer", "netns", self._pid)
        _run("ip", "address", "add", f"{self.machine}/24", "dev", link)
        _run("ip", "link", "set", link, "up")
        for change in (
            "link add bridge0 type bridge",
            "link set bridge0 up",
            "link set outer master bridge0 up",
        ):
            _run(*self.enter_network, "ip", *change.split())

    @property
    def machine(self) -> str:
        """This machine's address, as the hosts reach it."""
        return self.address(254)

    @property
    def _pid(self) -> str:
        return str(self._first.pid)

    def address(self, number: int) -> str:
        return f"10.232.{self.number}.{number}"

    def add(self, name: str) -> HostSpace:
        """Add a host that has booted, is trusted, and is known to all others by its name."""
        write_client_config(self.folder)
        host = HostSpace(self, name, len(self.hosts) + 1)
        self.hosts.append(host)
        lines = ["127.0.0.1 localhost", *(f"{one.sshd.address} {one.name}" for one in self.hosts)]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        host.boot()
        host.sshd.trust(name)
        with (self.folder / "ssh_config").open("a") as file:
            file.write(f"Host {name}\n  HostName {host.sshd.address}\n")
        return host

    def close(self) -> None:
        for host in self.hosts:
            host.shut_down()
        self._first.end()
        shutil.rmtree(self.folder)


class HostSpace:
    """One host. `sshd` is how it is reached; what it has on /tmp ends with it."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        self.network, self.name, self._link = network, name, f"h{number}"
        self._mac = f"02:00:00:00:00:{number:02x}"  # the same after a reboot, as others know it
        self.sshd = Sshd(network.folder, network.address(number), SSH_PORT)
        self._space: _Space | None = None

    def boot(self) -> None:
        enter = ["nsenter", "-t", self.network._pid, "-n", "-p", "--"]
        self._space = space = _Space(
            enter, ["--net", "--pid", "--uts", "--ipc", "--mount", "--mount-proc"]
        )
        _run(
            *self.network.enter_network,
            *("ip", "link", "add", self._link, "master", "bridge0", "type", "veth"),
            *("peer", "name", "eth0", "address", self._mac, "netns", str(space.pid)),
        )
        _run(*self.network.enter_network, "ip", "link", "set", self._link, "up")
        hosts = self.network.folder / "hosts"
        self.run(
            "sh",
            "-ec",
            f"""
            hostname {self.name}
            mount --bind {ROOT} {self.network.folder}/repository
            mount -t tmpfs -o mode=1777,size={DISK_BYTES} tmpfs /tmp
            mkdir -p {ROOT}  # which may be below /tmp
            mount --move {self.network.folder}/repository {ROOT}
            mount -t tmpfs -o mode=1777,size={SHM_BYTES} tmpfs /dev/shm
            mount --bind {hosts} /etc/hosts
            ip link set lo up
            ip address add {self.sshd.address}/24 dev eth0
            ip link set eth0 up
            """,
        )
        self.sshd.enter = self.enter()
        self.sshd.start()

    def shut_down(self) -> None:
        """End everything on it at once, as when its power fails."""
        self.sshd.stop()
        if self._space is not None:
            self._space.end()
            self._space = None

    def unplug(self) -> None:
        """Cut its network: no connection of others to it ends, as when its power fails."""
        _run(*self.network.enter_network, "ip", "link", "set", self._link, "down")

    def plug(self) -> None:
        _run(*self.network.enter_network, "ip", "link", "set", self._link, "up")

    def reboot(self) -> None:
        self.shut_down()
        self.boot()

    def processes(self) -> list[int]:
        """All processes on it, by their number on this machine."""
        assert self._space is not None, f"{self.name} is down"
        own = Path(f"/proc/{self._space.pid}/ns/pid").readlink()
        found = []
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdecimal() and (process / "ns/pid").readlink() == own:
                    found.append(int(process.name))
        return found

    def enter(self) -> list[str]:
        """What precedes a command line, to run it inside."""
        assert self._space is not None, f"{self.name} is down"
        return ["nsenter", "-t", str(self._space.pid), "-m", "-u", "-i", "-n", "-p", "--"]

    def run(self, *argv: str, check: bool = True) -> str:
        return _run(*self.enter(), *argv, check=check)


class _Space:
    """Namespaces of their own, below those that `enter` enters."""

    def __init__(self, enter: Sequence[str], kinds: Sequence[str]) -> None:
        argv = [*enter, "unshare", *kinds, "--fork", "--kill-child=KILL"]
        self._holder = subprocess.Popen(
            [*argv, sys.executable, "-S", "-c", _FIRST],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n", "no namespace: are you root?"
        self.pid = self._holder.pid
        for _ in range(2 if enter else 1):  # nsenter's child is unshare, and its child the first
            self.pid = only_child(self.pid)

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)  # the kernel ends all others with it
        self._holder.wait(ENDED_WITHIN_S)
        assert self._holder.stdout is not None
        self._holder.stdout.close()


@contextmanager
def host_spaces(*names: str) -> Iterator[Network]:
    network = Network()
    try:
        for name in names:
            network.add(name)
        yield network
    finally:
        network.close()


def _run(*argv: str, check: bool = True) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr or done.stdout}")
    return done.stdout


def _free_number() -> int:
    for number in range(NETWORKS):
        if not Path(f"/sys/class/net/{LINK}{number}").exists():
            return number
    raise RuntimeError(f"all {NETWORKS} network devices {LINK}N are in use")
