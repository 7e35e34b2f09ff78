"""Which processes are a cluster's, and that no other is ever touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from cockpit.backends.local.pods import process
from cockpit.backends.local.pods.process import (
    CLUSTER_VARIABLE,
    POD_VARIABLE,
    Found,
    PodTrace,
    ProcessId,
    end,
    environment_of,
    find,
    identify,
    is_alive,
    kill,
)
from cockpit.model.error import CockpitError

UID = uuid4().hex[:8]
"""Unique: tests run side by side, and one of them ends all processes of its cluster."""
MARKED = {CLUSTER_VARIABLE: UID, POD_VARIABLE: "p1", "PATH": os.defpath}
Start = Callable[[dict[str, str], Path], subprocess.Popen[bytes]]

NO_PID = 2**22 + 1
"""More than any PID of Linux."""

# The effect of setproctitle on a process, from outside: its environment cannot be read.
OVERWRITTEN: dict[str, str] = {}


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `sleep` with an environment and a directory; all are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(environment: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            ["/bin/sleep", "1000"], env=environment, cwd=cwd, start_new_session=True
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()


def pids(traces: tuple[PodTrace, ...], root: Path) -> set[int]:
    return {found.id.pid for found in find(UID, traces, str(root))}


def test_a_marked_process_is_found_wherever_it_stands(start: Start, tmp_path: Path) -> None:
    child = start(MARKED, Path("/"))
    (found,) = find(UID, (), str(tmp_path))
    assert (found.id.pid, found.pod, found.session) == (child.pid, "p1", child.pid)


def test_a_process_of_another_cluster_is_not_found(start: Start, tmp_path: Path) -> None:
    start(MARKED | {CLUSTER_VARIABLE: "other"}, tmp_path)
    assert pids((PodTrace("p1", str(tmp_path), 0),), tmp_path) == set()


def test_a_users_shell_in_the_clusters_directory_is_not_the_clusters(
    start: Start, tmp_path: Path
) -> None:
    start({"HOME": "/root"}, tmp_path)
    assert pids((PodTrace("p1", str(tmp_path), 0),), tmp_path) == set()


def test_an_overwritten_environment_is_recognised_by_the_directory(
    start: Start, tmp_path: Path
) -> None:
    inside = tmp_path / "p1" / "session"
    inside.mkdir(parents=True)
    child = start(OVERWRITTEN, inside)
    (found,) = find(UID, (PodTrace("p1", str(tmp_path / "p1"), 0),), str(tmp_path))
    assert (found.id.pid, found.pod) == (child.pid, "p1")


@pytest.mark.parametrize("is_in_exec", [False, True])
def test_a_process_in_the_middle_of_its_exec_is_not_taken_for_one_of_the_cluster(
    is_in_exec: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows an empty environment, as one does that was overwritten with zeros."""
    inside, shown = tmp_path / "p1", tmp_path / "proc" / "77"
    inside.mkdir()
    shown.mkdir(parents=True)
    fields = ["S", "1", "77", "77", *["0"] * 44, "0" if is_in_exec else "4096", "0"]
    (shown / "stat").write_text(f"77 (a b) {' '.join(fields)}")
    (shown / "environ").write_bytes(b"")
    (shown / "maps").write_text("7f00-7f01 r-xp")
    (shown / "cwd").symlink_to(inside)
    monkeypatch.setattr(process, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(process, "_EXEC_CHECK_S", 0.0)
    expected = set() if is_in_exec else {77}
    assert pids((PodTrace("p1", str(inside), 0),), tmp_path) == expected


def test_a_directory_that_only_begins_alike_is_not_the_pods(start: Start, tmp_path: Path) -> None:
    (tmp_path / "run2").mkdir()
    start(OVERWRITTEN, tmp_path / "run2")
    assert pids((PodTrace("p1", str(tmp_path / "run"), 0),), tmp_path / "run") == set()


def test_an_overwritten_environment_is_recognised_by_the_session(
    start: Start, tmp_path: Path
) -> None:
    child = start(OVERWRITTEN, Path("/"))
    assert child.pid in pids((PodTrace("p1", "/nowhere", child.pid),), tmp_path)
    assert child.pid not in pids((PodTrace("p1", "/nowhere", 0),), tmp_path)


def test_a_recycled_number_is_never_killed(start: Start, tmp_path: Path) -> None:
    child = start({"A": "b"}, tmp_path)
    now = identify(child.pid)
    assert now is not None
    before = now._replace(start_ticks=now.start_ticks - 1)
    assert not is_alive(before)
    assert not kill(before, signal.SIGKILL)
    assert child.poll() is None
    assert kill(now, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not kill(now, signal.SIGKILL)


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 10
    while identify(child.pid) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert Path(f"/proc/{child.pid}").exists()
    child.wait()


def test_ending_takes_all_and_reports_how_many(start: Start, tmp_path: Path) -> None:
    children = [start(MARKED, tmp_path) for _ in range(3)]
    assert end(lambda: find(UID, (), str(tmp_path))) == 3
    assert [child.wait() for child in children] == [-signal.SIGKILL] * 3


@pytest.mark.parametrize("stalled", [0, 1])
def test_ending_does_not_fail_because_a_scan_stalled(stalled: int) -> None:
    """The process that such a scan found has ended when the next one begins."""
    ended = Found(ProcessId(NO_PID, 1), NO_PID, "p1")
    scans = 0

    def stalls() -> list[Found]:
        nonlocal scans
        scans += 1
        if scans == stalled + 1:
            time.sleep(0.1)
        return [ended] if scans <= stalled + 1 else []

    assert end(stalls, timeout_s=0.05) == 1
    assert scans == stalled + 2


def test_a_process_that_does_not_end_is_reported() -> None:
    stuck = Found(ProcessId(NO_PID, 1), NO_PID, "p1")
    with pytest.raises(CockpitError, match=f"did not end: {NO_PID}") as raised:
        end(lambda: [stuck], timeout_s=0.05)
    assert "state D" in raised.value.why


def test_the_environment_of_a_recycled_number_is_empty(start: Start, tmp_path: Path) -> None:
    child = start(MARKED, tmp_path)
    now = identify(child.pid)
    assert now is not None
    assert environment_of(now)[POD_VARIABLE] == "p1"
    assert environment_of(ProcessId(now.pid, now.start_ticks + 1)) == {}
