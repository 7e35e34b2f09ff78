"""The start of a pod by the agent, with a process in place of the supervisor."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

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
