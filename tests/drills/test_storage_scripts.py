"""Storage faults on a directory and on processes of this test."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drills.script import eventually, run

LONG = "600"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    directory = tmp_path / "run" / "checkpoint_1"
    (directory / "rank_0").mkdir(parents=True)
    (directory / "rank_0" / "model.pt").write_bytes(bytes(range(256)) * 40)
    (directory / "state.json").write_text("{}")
    return directory


def is_writable(directory: Path) -> bool:
    try:
        (directory / "probe").write_text("")
        (directory / "probe").unlink()
    except OSError:
        return False
    return True


def test_a_read_only_directory_is_given_back_early(checkpoint: Path) -> None:
    where = str(checkpoint.parent)
    done = run("storage", "read-only", "cockpit-d2", where, LONG)
    assert done.returncode == 0, done.stderr
    try:
        assert not is_writable(checkpoint.parent)
    finally:
        for _ in range(2):
            assert run("storage", "off", "cockpit-d2", where).returncode == 0
    assert is_writable(checkpoint.parent)
    assert [path.name for path in checkpoint.parent.parent.iterdir()] == ["run"]
    eventually(lambda: not left_behind("cockpit-d2"))


def test_a_read_only_directory_comes_back_by_itself(checkpoint: Path) -> None:
    assert run("storage", "read-only", "cockpit-d3", str(checkpoint.parent), "1").returncode == 0
    assert not is_writable(checkpoint.parent)
    eventually(lambda: is_writable(checkpoint.parent))
    eventually(lambda: not left_behind("cockpit-d3"))


def test_writers_keep_the_disk_busy_and_leave_nothing(checkpoint: Path) -> None:
    where = str(checkpoint.parent)
    done = run("storage", "busy", "cockpit-d4", where, LONG, "2")
    assert done.returncode == 0, done.stderr
    assert "beside 2 writers" in done.stdout
    assert len(left_behind("cockpit-d4")) == 3
    assert run("storage", "off", "cockpit-d4", where).returncode == 0
    eventually(lambda: not left_behind("cockpit-d4"))
    assert [path.name for path in checkpoint.parent.parent.iterdir()] == ["run"]


@pytest.fixture
def process() -> Iterator[int]:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    yield child.pid
    child.kill()
    child.communicate()


def limit(pid: int) -> int:
    return resource.prlimit(pid, resource.RLIMIT_FSIZE)[0]


def test_a_process_may_write_again_after_the_limit_is_lifted_or_has_ended(process: int) -> None:
    before = limit(process)
    (known,) = run("filelimit", "check", str(process)).stdout.split()
    run("filelimit", "on", "cockpit-d5", "4096", LONG, known)
    assert limit(process) == 4096
    stranger = f"{process}:1"  # the same number, another process
    run("filelimit", "off", "cockpit-d7", stranger)
    assert limit(process) == 4096
    run("filelimit", "off", "cockpit-d5", known)
    assert limit(process) == before
    run("filelimit", "on", "cockpit-d6", "4096", "0.3", known)
    eventually(lambda: limit(process) == before)
    eventually(lambda: not left_behind("cockpit-d"))


def left_behind(name: str) -> list[int]:
    """Processes with this name in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and name.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # it ended meanwhile
    return found
