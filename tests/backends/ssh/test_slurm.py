"""The script for sbatch with real Slurm and real Ray: three nodes as namespaces of this machine.

Needs the Debian packages slurmctld, slurmd, slurm-client and munge, which it does not install.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cockpit.backends.ssh.description import read
from cockpit.cli.main import main
from cockpit.config import bundled
from tests.host_spaces import ROOT, Network, host_spaces
from tests.local_cluster import separate_state
from tests.slurm_cluster import PROGRAMS, Slurm, slurm_cluster

pytestmark = [
    pytest.mark.nightly,  # tests/manifests/test_slurm.py has the script without Slurm
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
    pytest.mark.skipif(
        not all(map(shutil.which, PROGRAMS)),
        reason="needs Debian's slurmctld, slurmd, slurm-client and munge",
    ),
]

SCRIPT = bundled.manifests() / "slurm/cluster.sbatch"
WITHIN_S = 900.0
ENDED = ("CANCELLED", "COMPLETED", "FAILED")


@pytest.fixture(scope="module")
def slurm() -> Iterator[tuple[Network, Slurm]]:
    with (
        separate_state(),
        host_spaces("login", "node-0", "node-1", "node-2") as network,
        slurm_cluster(network) as cluster,
    ):
        yield network, cluster


@contextmanager
def submitted(slurm: tuple[Network, Slurm], *argv: str) -> Iterator[tuple[str, Path, Path]]:
    """The number of the job, its hosts file and its output. A job that is left is canceled."""
    network, cluster = slurm
    program = network.folder / "cockpit"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m cockpit "$@"\n')
    program.chmod(0o755)
    environment = {
        "VENV": sys.prefix,
        "COCKPIT": str(program),
        "HOSTS_DIR": str(network.shared),
        "NETWORK": "10.232.",
        "SPARES": "1",
        "SSH_CONFIG": str(network.folder / "ssh_config"),
    }
    out = network.folder / "job.out"
    out.unlink(missing_ok=True)
    directory = str(network.shared)
    job = cluster.run(
        *("sbatch", "--parsable", f"--chdir={directory}", f"--output={out}"),
        str(SCRIPT),
        *argv,
        environment=environment,
    ).strip()
    try:
        yield job, network.shared / f"slurm-{job}.toml", out
    finally:
        cluster.run("scancel", job)
        wait_for(cluster, job, ENDED, out)


def wait_for(slurm: Slurm, job: str, states: tuple[str, ...], out: Path) -> str:
    deadline = time.monotonic() + WITHIN_S
    while (state := slurm.state(job)) not in states:
        assert time.monotonic() < deadline, (state, out.read_text())
        time.sleep(0.5)
    return state


def assert_nothing_runs(network: Network, file: Path) -> None:
    assert not file.exists()
    for host in network.hosts[1:]:
        assert "ray.scripts" not in host.run("ps", "-eo", "args")
        assert host.run("sh", "-c", "ls -d /tmp/cockpit-[0-9]* 2>/dev/null", check=False) == ""


def test_cluster_of_a_job_is_used_from_the_login_node_until_the_job_is_canceled(
    slurm: tuple[Network, Slurm], capsys: pytest.CaptureFixture[str]
) -> None:
    network, cluster = slurm
    with submitted(slurm) as (job, file, out):
        deadline = time.monotonic() + WITHIN_S
        while not out.exists() or "The hosts file is" not in out.read_text():
            assert cluster.state(job) not in ENDED, out.read_text()
            assert time.monotonic() < deadline, out.read_text()
            time.sleep(0.5)
        hosts = read(str(file))
        assert [host.name for host in hosts.hosts] == ["node-0", "node-1", "node-2"]
        code = main(["doctor", "--hosts", str(file), "-o", "json"])
        checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
        assert code == 0, checks
        assert checks["ray token"]["found"] == "the dashboard refuses requests without it"
        assert checks[f"dashboard of slurm-{job}"]["found"] == "2 nodes"
        cluster.run("scancel", job)
        wait_for(cluster, job, ("CANCELLED",), out)
    # The job is over for Slurm when its processes are.
    cluster.wait_until_ready()
    assert f"Deleted cluster slurm-{job}" in out.read_text()
    assert_nothing_runs(network, file)


def test_command_of_a_job_runs_on_its_nodes_and_the_cluster_is_deleted_after_it(
    slurm: tuple[Network, Slurm],
) -> None:
    network, cluster = slurm
    command = ("--", "python", "-c", "print(7)")
    with submitted(slurm, "launch", "--yes", "--follow", *command) as (job, file, out):
        state = wait_for(cluster, job, ENDED, out)
        assert state == "COMPLETED", out.read_text()
    cluster.wait_until_ready()
    assert "\n7\n" in out.read_text()
    assert_nothing_runs(network, file)
