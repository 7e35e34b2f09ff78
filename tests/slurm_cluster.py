"""A Slurm cluster for tests, on hosts of `host_spaces`: the first is the login node.

The programs are Debian's packages slurmctld, slurmd, slurm-client and munge. Their files are in the
network's folder, and nothing of the machine's own Slurm is used.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.child_process import die_with_parent
from tests.host_spaces import HostSpace, Network

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")
READY_WITHIN_S = 120.0
ENDED_WITHIN_S = 30.0
KILL_WAIT_S = 120
"""A canceled job deletes its cluster within this time."""


class Slurm:
    def __init__(self, network: Network) -> None:
        self.login, *self.nodes = network.hosts
        self.folder = network.folder / "slurm"
        self.folder.mkdir()
        self._conf = self.folder / "slurm.conf"
        self._conf.write_text(
            f"ClusterName=cockpit\nSlurmctldHost={self.login.name}\n"
            "SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nCredType=cred/munge\n"
            f"AuthInfo=socket={self.folder}/munge.socket\n"
            f"StateSaveLocation={self.folder}/state\nSlurmdSpoolDir={self.folder}/spool-%n\n"
            f"SlurmctldPidFile={self.folder}/slurmctld.pid\n"
            f"SlurmdPidFile={self.folder}/slurmd-%n.pid\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n"
            "SelectType=select/linear\nJobAcctGatherType=jobacct_gather/none\n"
            f"ReturnToService=2\nKillWait={KILL_WAIT_S}\n"
            f"NodeName={','.join(node.name for node in self.nodes)} CPUs={os.cpu_count()}\n"
            f"PartitionName=all Nodes=ALL Default=YES State=UP\n"
        )

    def run(self, *argv: str, environment: Mapping[str, str] | None = None) -> str:
        """Run a command of Slurm on the login node."""
        settings = {"SLURM_CONF": str(self._conf), **(environment or {})}
        given = [f"{name}={value}" for name, value in settings.items()]
        return self.login.run("env", *given, *argv)

    def state(self, job: str) -> str:
        """COMPLETED, CANCELLED, … as `scontrol show job` has it."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job)
        return shown.partition(" JobState=")[2].split()[0]

    def daemons(self) -> list[tuple[str, list[str]]]:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        files = {
            "key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid",
            "log-file": "munge.log", "seed-file": "munge.seed",
        }  # fmt: skip
        munge = [f"--{name}={self.folder}/{file}" for name, file in files.items()]
        return [
            ("munged", ["munged", "--foreground", "--force", *munge]),
            ("slurmctld", self._on(self.login, "slurmctld")),
            *((n.name, self._on(n, "slurmd", "-N", n.name)) for n in self.nodes),
        ]

    def _on(self, host: HostSpace, *argv: str) -> list[str]:
        return [*host.enter(), *argv, "-D", "-f", str(self._conf)]

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                states = self.run("sinfo", "--noheader", "--Node", "--format=%t").split()
            except RuntimeError as error:  # slurmctld does not listen yet
                states = [str(error)]
            if states == ["idle"] * len(self.nodes):
                return
            logs = [path.read_text()[-500:] for path in self.folder.glob("*.out")]
            assert time.monotonic() < deadline, (states, logs)
            time.sleep(0.2)


@contextmanager
def slurm_cluster(network: Network) -> Iterator[Slurm]:
    slurm = Slurm(network)
    with ExitStack() as stack:
        for name, argv in slurm.daemons():
            stack.callback(_end, _start(argv, slurm.folder / f"{name}.out"))
        slurm.wait_until_ready()
        yield slurm


def _start(argv: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            preexec_fn=die_with_parent,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """nsenter passes no signal on: what it started ends with its namespace."""
    process.kill()
    process.wait(ENDED_WITHIN_S)
