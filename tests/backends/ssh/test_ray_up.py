"""Ray's own cluster launcher with the configuration that `cockpit plan -o ray-up` prints.

On namespaces of this machine with real sshd and real Ray. Needs the Debian package rsync, with
which the launcher copies files, and which the test does not install.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.lambda_cloud import ray_up
from tests.host_spaces import ROOT, HostSpace, Network, host_spaces
from tests.ssh_cluster import description

pytestmark = [
    pytest.mark.nightly,  # tests/backends/lambda_cloud/test_ray_up.py has Ray's schema
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
    pytest.mark.skipif(shutil.which("rsync") is None, reason="needs Debian's rsync"),
]

WITHIN_S = 600.0
EVERY_S = 2.0
TYPE = "local.cluster.node"
"""Ray's name for each node of the provider `local`."""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with host_spaces("login", "head", "gpu-1", "gpu-2") as made:
        move_home(made.hosts[1])
        yield made


def move_home(head: HostSpace) -> None:
    """Give its user there the home that its sshd sets: ssh takes `~` of a key from passwd(5)."""
    folder = head.sshd.folder
    entry = f"s#:/root:#:{folder}/home:#"
    program = (
        f"sed '{entry}' /etc/passwd > {folder}/passwd; mount --bind {folder}/passwd /etc/passwd"
    )
    head.run("sh", "-ec", program)


def launcher(login: HostSpace, *argv: str) -> str:
    """Run a command of the launcher, whose files in /tmp are those of that host alone.

    With version 1 of the autoscaler: version 2 does not report to the dashboard.
    """
    ray = str(Path(sys.executable).with_name("ray"))
    home = f"HOME={login.sshd.folder}/home RAY_UP_enable_autoscaler_v2=0"
    program = f"{home} exec {ray} {shlex.join(argv)} 2>&1"
    return login.run("sh", "-c", program)


def read(head: HostSpace, verb: str) -> Any:
    """What `cockpit --address` shows of the cluster, on its head; None while it has no dashboard.

    The configuration of the launcher binds the dashboard to loopback.
    """
    argv = [sys.executable, "-m", "cockpit", verb, "--address", "http://127.0.0.1:8265"]
    program = f"cd {ROOT} && exec {shlex.join([*argv, '-o', 'json'])}"
    found = head.run("sh", "-c", program, check=False)
    return json.loads(found) if found else None


def pods_when(head: HostSpace, done: Callable[[dict[str, dict[str, Any]]], bool]) -> None:
    """Wait until the pods, by their address, satisfy `done`."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        pods = {pod["ip"]: pod for pod in read(head, "pods") or ()}
        if done(pods):
            return
        assert time.monotonic() < deadline, pods
        time.sleep(EVERY_S)


def running(host: HostSpace) -> set[str]:
    """Which of Ray's own processes run on the host."""
    return {"gcs_server", "raylet"} & {*host.run("ps", "-eo", "comm=").split()}


def ready(pods: dict[str, dict[str, Any]]) -> set[str]:
    return {address for address, pod in pods.items() if pod["ready"]}


def test_launcher_starts_the_hosts_of_the_file_and_cockpit_shows_the_one_that_it_waits_for(
    network: Network,
) -> None:
    login, head, first, second = network.hosts
    hosts = description([head.sshd, first.sshd, second.sshd], replicas=2)
    addresses = [host.sshd.address for host in (head, first, second)]
    file = network.folder / "ray-up.yaml"
    file.write_text(ray_up.text(hosts, str(network.folder / "user")))
    second.shut_down()
    launcher(login, "up", str(file), "--yes", "--no-config-cache")

    def waits_for_the_second(pods: dict[str, dict[str, Any]]) -> bool:
        waiting = pods.get(addresses[2], {"reason": ""})
        return ready(pods) == {*addresses[:2]} and waiting["reason"] == "waiting-for-ssh"

    pods_when(head, waits_for_the_second)
    status = read(head, "status")
    assert status["cluster"]["message"] == "1 node launching"
    assert [(one["name"], one["desired"], one["ready"]) for one in status["groups"]] == [
        (TYPE, 2, 1)
    ]
    second.boot()
    pods_when(head, lambda pods: ready(pods) == {*addresses})
    launcher(login, "down", str(file), "--yes")
    assert running(head) == set()
    # The launcher stops Ray on the head alone: a raylet ends when it has found no GCS for a minute
    # (RAY_gcs_rpc_server_reconnect_timeout_s).
    deadline = time.monotonic() + WITHIN_S
    while left := {host.name: found for host in (first, second) if (found := running(host))}:
        assert time.monotonic() < deadline, left
        time.sleep(EVERY_S)
