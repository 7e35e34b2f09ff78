"""The start and the end of a pod by the agent, with a process in place of the supervisor."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cockpit.backends.local.pods.process import identify
from cockpit.backends.ssh.agent import pod as agent_pod
from cockpit.backends.ssh.agent import supervisor
from cockpit.backends.ssh.agent.place import Place
from cockpit.backends.ssh.agent.state import shown_pods
from cockpit.model.error import UsageError

POD = {"name": "gpu-1-x1abc", "created_s": 0.0}
REQUEST = {"pod": POD, "cluster": "u", "head_uid": "h", "unit": False}


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place(f"test-{os.getpid()}")
    yield made
    shutil.rmtree(made.root)


def test_pod_is_not_listed_as_ended_while_its_supervisor_starts(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    during: list[list[dict[str, Any]]] = []
    own = subprocess.Popen(["sleep", "600"])

    def popen(*args: object, **options: object) -> subprocess.Popen[bytes]:
        during.append(shown_pods(place))
        return own

    monkeypatch.setattr(supervisor, "write_token", lambda place: None)
    monkeypatch.setattr(subprocess, "Popen", popen)
    try:
        supervisor.start(place, REQUEST)
        assert during == [[]]
        (pod,) = shown_pods(place)
        assert (pod["over"], pod["pod"]) == (False, POD)
        with pytest.raises(UsageError, match="A host has one Ray node, and gpu-1-x1abc runs"):
            supervisor.start(place, REQUEST)
    finally:
        own.kill()
        own.wait()


@pytest.mark.parametrize("grace_s", [30.0, 0.0])
def test_request_to_stop_is_never_seen_half_written(
    place: Place, monkeypatch: pytest.MonkeyPatch, grace_s: float
) -> None:
    """Its supervisor would read that as a request without grace."""
    place.make()
    record = REQUEST | {"pod": POD | {"uid": "p"}, "supervisor": identify(os.getpid())}
    place.write("gpu-1-x1abc.json", record)
    stop = place.file("gpu-1-x1abc", "stop")
    during: list[bool] = []
    write_text = Path.write_text

    def slowly(path: Path, text: str) -> int:
        path.touch()
        during.append(stop.exists())
        return write_text(path, text)

    monkeypatch.setattr(Path, "write_text", slowly)
    agent_pod.delete(place, {"pod": "gpu-1-x1abc", "uid": "p", "grace_s": grace_s})
    assert during == [False]
    assert (float(stop.read_text()) > time.time()) is (grace_s > 0)
