"""A real sshd on loopback for tests, with its own keys and configuration; ~/.ssh is not read."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cockpit.backends.local.address import choose_ports
from tests.child_process import only_child

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin") or "/usr/sbin/sshd"
SEPARATED = Path("/run/sshd")
"""The directory for sshd's privilege separation, which root's needs (sshd(8), FILES)."""
STARTED_WITHIN_S = 20.0


class Sshd:
    """One host: an sshd at `address` and `port`. `config` is for `ssh -F`."""

    def __init__(self, folder: Path, address: str, port: int) -> None:
        self.address, self.port = address, port
        self.folder = folder / address
        self.config = folder / "ssh_config"
        self.enter: list[str] = []
        """What precedes its command line, to run it in namespaces."""
        self._process: subprocess.Popen[bytes] | None = None
        # A login shell reads no file of the user: an interrupted one may leave a lock there.
        (self.folder / "home").mkdir(parents=True)
        self.new_host_key()
        (self.folder / "sshd_config").write_text(
            f"ListenAddress {address}:{port}\nHostKey {self.folder}/key\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPrintMotd no\n"
            f"SetEnv HOME={self.folder}/home\n"
            "PermitUserRC no\nPermitRootLogin prohibit-password\nMaxStartups 100\n"
        )

    def new_host_key(self) -> None:
        """Give the host another key, as an installation of its system does."""
        (self.folder / "key").unlink(missing_ok=True)
        make_key(self.folder / "key")

    def trust(self, *names: str) -> None:
        """Add its key to known_hosts, as the first login by hand does, also by other names."""
        key = (self.folder / "key.pub").read_text().rsplit(" ", 1)[0]
        with (self.config.parent / "known_hosts").open("a") as file:
            at = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
            file.write(f"{','.join((at, *names))} {key}\n")

    def start(self) -> None:
        if os.getuid() == 0:
            SEPARATED.mkdir(mode=0o755, exist_ok=True)  # stays: tests of other processes use it
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self.enter, SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + STARTED_WITHIN_S
        while True:
            with suppress(OSError), socket.create_connection((self.address, self.port), 1):
                return
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "sshd does not listen"
            time.sleep(0.05)

    def cut(self) -> None:
        """End all connections, as a network that fails does; new ones are accepted."""
        for pid in children(self.daemon):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Accept no connection any more, and end all that there are."""
        if self._process is not None:
            os.kill(self.daemon, signal.SIGSTOP)  # so that it accepts none in between
            self.cut()
            os.kill(self.daemon, signal.SIGKILL)
            self._process.send_signal(signal.SIGCONT)  # nsenter stops itself with its child
            self._process.wait()
            self._process = None

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def daemon(self) -> int:
        """The process that listens."""
        assert self._process is not None, f"sshd at {self.address} was not started"
        return only_child(self._process.pid) if self.enter else self._process.pid


def write_client_config(folder: Path) -> None:
    """A key and a configuration for `ssh -F`; `-F` leaves out ~/.ssh/config and /etc/ssh."""
    if (folder / "user").exists():
        return
    make_key(folder / "user")
    (folder / "ssh_config").write_text(
        f"User {getpass.getuser()}\nIdentityFile {folder}/user\nIdentitiesOnly yes\n"
        f"UserKnownHostsFile {folder}/known_hosts\nGlobalKnownHostsFile none\n"
        "IdentityAgent none\n"
    )


@contextmanager
def hosts(count: int = 1) -> Iterator[list[Sshd]]:
    """Hosts on loopback addresses of their own, each with an sshd that runs and is trusted."""
    folder = Path(tempfile.mkdtemp(prefix="cockpit-sshd-"))
    listed: list[Sshd] = []
    try:
        write_client_config(folder)
        (port,) = choose_ports(1)
        network = f"127.{100 + os.getpid() // 250 % 100}.{os.getpid() % 250}"
        for number in range(1, count + 1):
            listed.append(Sshd(folder, f"{network}.{number}", port))
            listed[-1].trust()
            listed[-1].start()
        yield listed
    finally:
        for host in listed:
            host.stop()
        shutil.rmtree(folder)


def make_key(path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


def children(pid: int) -> list[int]:
    """All processes below this one, by its number (proc_pid_task_children(5))."""
    found = []
    with suppress(OSError):
        for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += [int(text), *children(int(text))]
    return found
