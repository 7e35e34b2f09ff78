"""The walk of docs/hosts.md, on three namespaces of this machine with real sshd and real Ray.

The hosts have Debian's Python alone. There, pip installs wheels from a directory, which have only
the path to the packages of this environment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.backends.ssh import lifecycle
from cockpit.backends.ssh.backend import SshBackend
from cockpit.backends.ssh.description import Hosts, read
from cockpit.session import builder
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from tests import local_wheels
from tests.host_spaces import ROOT, Network, host_spaces
from tests.local_cluster import separate_state
from tests.page import section, unmarked_commands
from tests.ssh_cluster import OBJECT_STORE_BYTES

BARE = "/usr/bin/python3"


def has_same_python() -> bool:
    """Whether Debian's Python can load the compiled packages of this environment."""
    program = "import ensurepip, sysconfig; print(sysconfig.get_config_var('SOABI'))"
    done = subprocess.run([BARE, "-c", program], capture_output=True, text=True)
    return done.stdout.strip() == str(sysconfig.get_config_var("SOABI"))


pytestmark = [
    pytest.mark.nightly,  # test_contract.py has the operator; tests.bench.hosts has the numbers
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
    pytest.mark.skipif(not has_same_python(), reason="Debian's Python is of another version"),
]

PAGE = (ROOT / "docs/hosts.md").read_text()
WALK = section(PAGE, "From three bare hosts to a recovered run")
WITHIN_S = 600.0


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with separate_state(), host_spaces("head", "gpu-1", "gpu-2") as made:
        wheels = made.folder / "wheels"
        wheels.mkdir()
        local_wheels.add_installed(wheels, "ray", "torch", "torchvision")
        for host in made.hosts:
            local_wheels.use(host.sshd.folder / "home", wheels)
        yield made


def written(network: Network) -> Hosts:
    """The file of the page, with the addresses of these hosts, whose own disk is at /tmp."""
    found = re.search(r"```toml\n(.*?)```", WALK, re.DOTALL)
    assert found is not None
    text = re.sub("(?m)^   ", "", found[1])
    for number, host in enumerate(network.hosts):
        text = text.replace(f'"10.0.0.1{number}"', f'"{host.sshd.address}"')
    assert text.count('"/home/ubuntu/ray"') == 1
    text = text.replace('"/home/ubuntu/ray"', '"/tmp/ray-venv"\nssh_config = "ssh_config"')
    # Ray's default is a part of the memory that three hosts share here.
    text = text.replace("cpus = 1\n", f"cpus = 1\nobject_store_bytes = {OBJECT_STORE_BYTES}\n")
    (network.folder / "hosts.toml").write_text(text)
    return read(str(network.folder / "hosts.toml"))


def run(network: Network, words: list[str]) -> str:
    """Run a command of the page, as its reader does."""
    argv = [word.replace("/shared", str(network.shared)) for word in words[1:]]
    program = {"cockpit": [sys.executable, "-m", "cockpit"], "ssh": ["ssh", "-F", "ssh_config"]}
    done = subprocess.run(
        [*program[words[0]], *argv],
        cwd=network.folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    print(f"{time.monotonic():.1f}", *words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def trained(hosts: Hosts) -> None:
    """Wait until the run has a checkpoint, as the page asks for."""

    def has_checkpoint(store: Store) -> bool:
        found = current_run(store)
        return found is not None and found.checkpoint_s is not None

    with builder.session_on(SshBackend(hosts)) as session:
        assert session.wait(has_checkpoint, WITHIN_S), session.store.jobs


def test_commands_of_the_page_lead_to_a_recovered_run_and_leave_nothing(network: Network) -> None:
    hosts = written(network)
    commands = unmarked_commands(WALK)
    verbs = ["up", "doctor", "launch", "ranks", "kill", "down"]
    assert [words[1] for words in commands] == ["head", "gpu-1", "gpu-2", *verbs]
    printed = {}
    try:
        for words in commands:
            if words[1] == "ranks":
                trained(hosts)
            printed[words[1]] = run(network, words)
    finally:
        lifecycle.end_operator(hosts)  # the namespaces end all others
    assert all("Python 3." in printed[host.name] for host in network.hosts)
    assert all(f"Set up {host.name}." in printed["up"] for host in network.hosts)
    assert "requests without it" in printed["doctor"]
    assert "recovered" in printed["kill"].lower()
    assert "on 3 hosts no process and no file of it is left" in printed["down"]
    for host in network.hosts:
        assert "ray.scripts" not in host.run("ps", "-eo", "args")
        assert list(Path(f"/proc/{host.processes()[0]}/root/tmp").glob("cockpit-*")) == []
