"""`python -m tests.cluster`, as a person uses it: up, status, down, and up again after a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.build import CACHE
from tests.cluster.control_plane import ControlPlane
from tests.cluster.raycluster import ray_pod_template
from tests.cluster.space import kept
from tests.cluster.traces import Traces

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_folder(programs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`down` here must not end a cluster that a user keeps; and none of this test must remain."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("COCKPIT_TESTBED_CACHE", str(CACHE))
    yield
    for space in kept():
        space.close()


@pytest.mark.slow
def test_down_ends_all_that_up_started() -> None:
    text = _run("up")
    [space] = kept()
    plane = ControlPlane.of(space)
    assert text.splitlines()[-1] == f"export KUBECONFIG={plane.kubeconfig}"
    assert _run("status") == f"{space.name}: {plane.server}, kubeconfig {plane.kubeconfig}\n"
    _start_pod(plane)
    traces = Traces.of(space)
    assert {label.split()[0] for label in traces.seen()} == {"process", "group", "folder", "device"}
    assert _run("down") == f"ended {space.name}\n"
    assert traces.seen() == []
    assert _run("status") == ""


@pytest.mark.slow
def test_up_clears_what_a_crash_left() -> None:
    _run("up")
    [crashed] = kept()
    _start_pod(ControlPlane.of(crashed))
    traces = Traces.of(crashed)
    for pid in traces.processes():
        _kill(pid)
    _until(lambda: not traces.processes())
    assert {text.split()[0] for text in traces.seen()} >= {"group", "folder"}
    _run("up", "--control-plane")
    [space] = kept()
    assert ControlPlane.of(space).ask("GET", "/readyz") == "ok"
    assert not [text for text in traces.seen() if text.split()[0] in ("group", "folder")]
    _run("down")
    assert traces.seen() == []


def _run(*argv: str) -> str:
    command = [sys.executable, "-m", "tests.cluster", *argv]
    return subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=120
    ).stdout


def _start_pod(plane: ControlPlane) -> None:
    """A process that continues: its mounts and control groups may be left behind."""
    template = ray_pod_template("main", memory="256Mi")
    [container] = template["spec"]["containers"]
    container["command"] = ["sleep", "1000"]
    pods = "/api/v1/namespaces/default/pods"
    plane.ask("POST", pods, {**template, "metadata": {"name": "lasting"}})
    _until(lambda: plane.ask("GET", f"{pods}/lasting")["status"]["phase"] == "Running")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it ended with another
        return


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)
