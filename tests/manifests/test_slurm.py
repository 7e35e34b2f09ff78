"""The script for sbatch, with programs in place of srun and cockpit. test_slurm_real has Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cockpit.backends.ssh.description import read
from cockpit.config import bundled

SCRIPT = bundled.manifests() / "slurm/cluster.sbatch"
SRUN = """#!/bin/sh
echo 1 Gpu_1 0 127.0.0.1 10.1.0.12 192.168.0.3
echo 0 login-0 0 10.1.0.11
echo 2 gpu-2 8 192.168.0.4 10.1.0.13 fd00::4
"""
COCKPIT = """#!/bin/sh
echo "$@ ${COCKPIT_HOSTS:+with $COCKPIT_HOSTS}" >>"$CALLS"
if [ "$1" = "$STUCK" ]; then exec sleep 600; fi
[ "$1" != "$FAILS" ]
"""


class Job:
    """The script as the batch step of job 7, with its calls of cockpit."""

    def __init__(self, folder: Path) -> None:
        self.file, self.calls = folder / "slurm-7.toml", folder / "calls"
        self.calls.touch()
        for name, text in (("srun", SRUN), ("cockpit", COCKPIT)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "COCKPIT": str(folder / "cockpit"),
            "VENV": "/opt/ray",
            "HOSTS_DIR": str(folder),
            "NETWORK": "10.1.",
            "SPARES": "1",
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NUM_NODES": "3",
            "CALLS": str(self.calls),
            "STUCK": "",
            "FAILS": "",
        }

    def start(self, *argv: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(SCRIPT), *argv],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def called(self) -> list[str]:
        return [line.strip() for line in self.calls.read_text().splitlines()]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_command_runs_on_the_cluster_of_the_nodes_which_is_deleted_after_it(job: Job) -> None:
    kept = job.file.with_name("kept.toml")
    script = f"#!/bin/sh\n[ $1 = down ] || cp {job.file} {kept}\n" + COCKPIT.partition("\n")[2]
    Path(job.environment["COCKPIT"]).write_text(script)
    process = job.start("launch", "ddp")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert job.called == [
        f"up --on hosts {job.file}",
        f"launch ddp with {job.file}",
        f"down --on hosts {job.file} --yes with {job.file}",
    ]
    assert not job.file.exists()
    hosts = read(str(kept))
    assert (hosts.cluster, hosts.head.name) == ("slurm-7", "login-0")
    assert hosts.replicas == {"workers": 1}
    assert [(h.name, h.ssh, h.address, h.gpus) for h in hosts.hosts] == [
        ("login-0", "login-0", "10.1.0.11", None),
        ("gpu-1", "Gpu_1", "10.1.0.12", None),
        ("gpu-2", "gpu-2", "10.1.0.13", 8.0),
    ]
    assert {host.python for host in hosts.hosts} == {"/opt/ray/bin/python"}
    assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("stuck", ["up", "launch"])
def test_canceled_job_deletes_the_cluster(job: Job, stuck: str) -> None:
    process = job.start("launch", "ddp", STUCK=stuck)
    while not any(line.startswith(stuck) for line in job.called):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert job.called[-1].startswith(f"down --on hosts {job.file} --yes")
    assert not job.file.exists()


@pytest.mark.parametrize(("fails", "kept"), [("up", False), ("launch", False), ("down", True)])
def test_failure_is_the_result_of_the_job_and_the_file_stays_while_the_cluster_does(
    job: Job, fails: str, kept: bool
) -> None:
    process = job.start("launch", "ddp", FAILS=fails)
    process.communicate(timeout=60)
    assert (process.returncode != 0, job.file.exists()) == (True, kept)
    assert job.called[-1].startswith("down")


def test_node_without_an_address_of_the_network_is_named(job: Job) -> None:
    process = job.start(NETWORK="10.9.")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Node login-0 has no address that begins with '10.9.', but: 10.1.0.11" in errors
    assert job.called == []


def test_directives_of_sbatch_precede_the_first_command() -> None:
    """sbatch stops reading them there."""
    lines = SCRIPT.read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if line and not line.startswith("#"))
    directives = [line for line in lines if line.startswith("#SBATCH ")]
    assert set(directives) == {line for line in lines[:first] if line.startswith("#SBATCH ")}
    assert "#SBATCH --signal=B:TERM@120" in directives
