"""Pods as units of the user's systemd, on a host with a real systemd and its logind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.description import Hosts, read
from cockpit.model.error import CockpitError
from tests.child_process import die_with_parent, only_child
from tests.host_spaces import HostSpace, host_spaces
from tests.local_cluster import separate_state
from tests.ssh_cluster import description, stand_in_python

INIT = Path("/lib/systemd/systemd")
GROUPS = Path("/sys/fs/cgroup/systemd")
pytestmark = [
    pytest.mark.nightly,  # logind ends a session 20 s after its last connection
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
    pytest.mark.skipif(not INIT.exists(), reason="needs Debian's systemd"),
    pytest.mark.skipif(not GROUPS.is_dir(), reason="needs systemd's hierarchy of cgroup v1"),
]

WITHIN_S = 120.0
EVERY_S = 0.25
BOOT = """
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /var/lib/systemd
login=/run/systemd/logind.conf.d
mkdir -p /run/lock /run/sshd $login /var/lib/systemd/linger
printf '[Login]\\nKillUserProcesses=yes\\nKillExcludeUsers=nobody\\n' > $login/kill.conf
mount -t tmpfs tmpfs /sys/fs/cgroup
mkdir /sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd,xattr systemd /sys/fs/cgroup/systemd
mount -o remount,ro /sys/fs/cgroup
export container=cockpit
exec /lib/systemd/systemd --system --unit=basic.target --log-target=null
"""
"""Nothing of the machine's own services is started, its state is hidden, and it has cgroups in one
hierarchy alone, below the one that it is started in."""


class Booted:
    """The host, with systemd as the first process of its processes."""

    def __init__(self, host: HostSpace) -> None:
        self.host = host
        host.sshd.stop()
        self._group = GROUPS / f"cockpit-systemd-{os.getpid()}"
        self._group.mkdir()
        spaces = ["--fork", "--pid", "--mount", "--mount-proc", "--cgroup", "--kill-child=KILL"]
        joined = f'echo $$ > {self._group}/cgroup.procs; exec "$@"'
        unshared = ["unshare", *spaces, "sh", "-ec", BOOT]
        self._holder = subprocess.Popen(
            ["sh", "-ec", joined, "sh", *host.enter(), *unshared],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        self.pid = only_child(only_child(self._holder.pid))
        self.until(lambda: self.call("systemctl", "is-active", "basic.target") == "active")
        for unit in ("dbus.service", "systemd-logind.service"):
            assert self._run("systemctl", "start", unit).returncode == 0, unit
        config = host.sshd.folder / "sshd_config"
        config.write_text(config.read_text().replace("UsePAM no", "UsePAM yes"))
        host.sshd.enter = self._enter
        host.sshd.start()

    @property
    def _enter(self) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "-C", "--"]

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._enter, *argv], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    def call(self, *argv: str) -> str:
        return self._run(*argv).stdout.strip()

    def user(self, *argv: str) -> str:
        """The output of a command for the user's own systemd."""
        return self.call("env", "XDG_RUNTIME_DIR=/run/user/0", "systemctl", "--user", *argv)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, (
                self.call("loginctl"),
                self.call("ps", "-eo", "pid,args"),
                self.user("list-units", "cockpit-*", "--no-legend"),
            )
            time.sleep(EVERY_S)

    def close(self) -> None:
        self.host.sshd.stop()
        os.kill(self.pid, signal.SIGKILL)  # the kernel ends all others with it
        self._holder.wait(WITHIN_S)
        for folder in sorted(self._group.glob("**/"), reverse=True):  # the innermost first
            folder.rmdir()


@contextmanager
def booted() -> Iterator[Booted]:
    with separate_state(), host_spaces("head") as network:
        made = Booted(network.hosts[0])
        try:
            yield made
        finally:
            made.close()


def described(made: Booted, supervisor: str) -> Hosts:
    folder = made.host.network.folder
    path = Path(description([made.host.sshd], python=stand_in_python(folder)).path)
    path.write_text(f'supervisor = "{supervisor}"\n' + path.read_text())
    return read(str(path))


def supervisors(made: Booted) -> int:
    return made.call("ps", "-eo", "args").count(" supervise ")


def test_pod_continues_after_the_last_session_as_a_unit_alone() -> None:
    """With KillUserProcesses=yes in logind.conf."""
    with booted() as made:
        plain = described(made, "process")
        asyncio.run(lifecycle.up(plain, "fast", WITHIN_S, print))
        assert supervisors(made) == 1
        lifecycle.end_operator(plain)
        made.until(lambda: supervisors(made) == 0)
        asyncio.run(lifecycle.down(plain))

        hosts = described(made, "systemd")
        with pytest.raises(CockpitError, match="user root does not linger"):
            asyncio.run(lifecycle.up(hosts, "fast", WITHIN_S, print))
        made.call("loginctl", "enable-linger", "root")
        asyncio.run(lifecycle.up(hosts, "fast", WITHIN_S, print))
        lifecycle.end_operator(hosts)
        made.until(lambda: "root" not in made.call("loginctl", "list-sessions"))
        assert supervisors(made) == 1
        (unit,) = made.user("list-units", "cockpit-*", "--no-legend", "--plain").splitlines()
        assert unit.split()[1:4] == ["loaded", "active", "running"]

        asyncio.run(lifecycle.down(hosts))
        assert supervisors(made) == 0
        made.until(lambda: made.user("list-units", "cockpit-*", "--all", "--no-legend") == "")
