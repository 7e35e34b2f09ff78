"""`cockpit local down` without a cluster: confirmation and flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.backends.local.pods.process import ProcessId
from cockpit.backends.local.state import LocalCluster, PodStatus, Status
from cockpit.cli.cluster import local
from cockpit.cli.main import main
from cockpit.model.cluster import NodeType, Pod, PodPhase

Capture = pytest.CaptureFixture[str]
NOBODY = ProcessId(1, 0)
"""No process began at that tick under that number."""


class Taken:
    """A cluster `lab` of one head, and what was taken down."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.down: list[str] = []
        self.operator_alive = True
        self.phase = PodPhase.RUNNING
        self._directory = directory
        monkeypatch.setattr(local, "status", self.status)
        monkeypatch.setattr(local, "down", lambda name, uid: self.down.append(name))

    def status(self, name: str) -> LocalCluster:
        head = Pod("lab-head", "headgroup", NodeType.HEAD, self.phase, True)
        reported = Status(1.0, NOBODY, (PodStatus(head, NOBODY),))
        return LocalCluster(name, None, reported, self.operator_alive, self._directory)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Taken:
    return Taken(monkeypatch, tmp_path)


def test_pods_that_live_are_not_taken_down_unasked(lab: Taken, capsys: Capture) -> None:
    assert main(["local", "down", "lab"]) == 2
    reported = capsys.readouterr().err
    assert "Delete local cluster lab: 1 pod, every run on it, and its files." in reported
    assert "Add --yes" in reported
    assert main(["local", "down", "lab", "--dry-run"]) == 0
    assert main(["--read-only", "local", "down", "lab", "--yes"]) == 4
    assert lab.down == []
    assert main(["local", "down", "lab", "--yes"]) == 0
    assert lab.down == ["lab"]


def test_a_cluster_that_is_being_put_up_is_asked_for_too(lab: Taken) -> None:
    lab.phase = PodPhase.FAILED
    assert main(["local", "down", "lab"]) == 2
    assert lab.down == []


def test_files_alone_are_taken_away_unasked(lab: Taken, capsys: Capture) -> None:
    lab.operator_alive = False
    assert main(["local", "down", "lab", "--dry-run"]) == 0
    assert main(["--read-only", "local", "down", "lab"]) == 4
    assert lab.down == []
    capsys.readouterr()
    assert main(["local", "down", "lab"]) == 0
    assert lab.down == ["lab"]
    assert "only its files are left" in capsys.readouterr().err
