"""The wheel on a real cluster: the first minutes of a user who has it and a kubeconfig only."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import wheel
from tests.bench.terminal import Terminal
from tests.cluster.fixtures import RealCluster
from tests.cluster.raycluster import STORAGE
from tests.local_cluster import LIGHT_FLAGS

START_S = 150.0
UI_S = 60.0

# Nightly, since it installs packages. Each part in the other lanes: tests/test_wheel.py, and
# test_recovery.py here.
pytestmark = [pytest.mark.nightly, pytest.mark.ray]


@dataclass(frozen=True)
class User:
    """cockpit in an environment without Ray and torch, and a kubeconfig."""

    program: Path
    home: Path
    cluster: RealCluster

    @property
    def where(self) -> tuple[str, ...]:
        """As README has it: the kubeconfig names the context."""
        return ("-n", self.cluster.ref.namespace, "--cluster", self.cluster.ref.name)

    def call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        kubeconfig = str(self.cluster.kubeconfig)
        return wheel.called([str(self.program), *argv], self.home, KUBECONFIG=kubeconfig)

    def run(self, *argv: str) -> str:
        done = self.call(*argv)
        assert done.returncode == 0, f"{argv}: exit code {done.returncode}\n{done.stderr}"
        assert "defect" not in done.stderr
        return done.stdout

    def read(self, *argv: str) -> Any:
        return json.loads(self.run(*argv, *self.where, "-o", "json"))

    def pods(self) -> set[str]:
        """As the API server has them."""
        return {pod["metadata"]["name"] for pod in self.cluster.pods()}

    def until(self, found: Callable[[], Any], timeout_s: float = START_S) -> Any:
        """The first true result."""
        deadline = time.monotonic() + timeout_s
        while not (result := found()):
            assert time.monotonic() < deadline, self.run("status", *self.where)
            time.sleep(1.0)
        return result

    def has_checkpoint(self, job: str) -> bool:
        """Whether the run of the job has, and not an earlier one."""
        run = self.read("status")["run"]
        return run is not None and run["name"] == job and run["checkpoint"] is not None

    def shown(self, *texts: str, keys: str = "") -> None:
        """Open the UI on a terminal, press the keys, and wait until it has shown the texts."""
        argv = ["env", "-i", *(f"{name}={text}" for name, text in self.environment().items())]
        where = (f"--namespace={self.cluster.ref.namespace}", f"--cluster={self.cluster.ref.name}")
        with Terminal([*argv, str(self.program), *where]) as terminal:
            terminal.wait_for("ready", UI_S)
            terminal.type(keys)
            seen, missing = "", set(texts)
            for _, text in terminal.texts(UI_S):
                seen += text
                if not (missing := {text for text in missing if text not in seen}):
                    break
            assert not missing, (missing, seen[-2_000:])

    def environment(self) -> dict[str, str]:
        kubeconfig = str(self.cluster.kubeconfig)
        return wheel.environment(self.home, KUBECONFIG=kubeconfig, TERM="xterm-256color")


@pytest.fixture
def user(ray_on_kubernetes: RealCluster, tmp_path: Path) -> Iterator[User]:
    """Afterwards, the cluster has one worker again."""
    place = tmp_path / "installed"
    wheel.install(sys.executable, wheel.built(tmp_path / "wheel"), place)
    assert not [name for name in ("ray", "torch") if list(place.glob(f"lib/*/*/{name}"))]
    (tmp_path / "home").mkdir()
    made = User(place / "bin" / "cockpit", tmp_path / "home", ray_on_kubernetes)
    yield made
    made.run("scale", "gpu", "1", "--yes", *made.where)
    ray_on_kubernetes.wait_ready(1)


def test_first_minutes_on_a_cluster_with_the_wheel_and_a_kubeconfig(user: User) -> None:
    checks = {check["name"]: check for check in user.read("doctor")}
    assert not [check for check in checks.values() if not check["ok"]]
    assert {"kubeconfig", "api server", "raycluster"} <= checks.keys()
    assert not checks.keys() & {"ray", "torch"}, "a remote cluster needs neither here"

    listed = json.loads(user.run("clusters", "-o", "json"))
    assert [cluster["name"] for cluster in listed] == [user.cluster.ref.name]
    assert "is ready" in user.run("status", *user.where)

    user.run("scale", "gpu", "2", "--wait", "--yes", *user.where)
    names = user.pods()
    assert {pod["name"] for pod in user.read("pods")} == names
    assert all(pod["ready"] for pod in user.read("pods"))
    user.shown(*names, keys="4")

    launch = ("launch", "checkpointed", "--workers", "2", "--set", f"storage_path={STORAGE}/wheel")
    job = user.run(*launch, *LIGHT_FLAGS, "--yes", *user.where).split()[-1]
    try:
        user.until(lambda: user.has_checkpoint(job))
        user.shown("RANK", *(name for name in names if "-head-" not in name), keys="2")
        planned = user.call("kill", "1", "--dry-run", *user.where)
        assert any(name in planned.stderr for name in names), planned
        assert user.pods() == names, "nothing is killed"
        recovery = user.read("kill", "1", "--yes")
        assert recovery["recovered"], recovery
        assert recovery["steps_lost"] is not None
        assert len(user.pods() - names) == 1
    finally:
        user.run("stop", job, "--yes", *user.where)
