"""Storage faults on a directory and on processes of this test."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.drills.engine import pod_script
from tests.drills.script import eventually, run

LONG = "600"


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
    began = time.monotonic()
    assert run("storage", "read-only", "cockpit-d3", str(checkpoint.parent), "1").returncode == 0
    assert not is_writable(checkpoint.parent) or time.monotonic() - began >= 1
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
            continue  # it has ended
    return found


def read_only(name: str, checkpoint: Path, seconds: str = LONG) -> None:
    done = run("storage", "read-only", name, str(checkpoint.parent), seconds)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("first", [0, 1])
def test_overlapping_faults_give_a_directory_back_with_the_last(
    checkpoint: Path, first: int
) -> None:
    names, where = ["cockpit-d20", "cockpit-d21"], str(checkpoint.parent)
    mode = checkpoint.parent.stat().st_mode
    for name in names:
        read_only(name, checkpoint)
    for name in (names[first], names[first]):  # the second time does nothing
        assert run("storage", "off", name, where).returncode == 0
        assert not is_writable(checkpoint.parent)
    assert run("storage", "off", names[1 - first], where).returncode == 0
    assert is_writable(checkpoint.parent)
    assert checkpoint.parent.stat().st_mode == mode
    assert [path.name for path in checkpoint.parent.parent.iterdir()] == ["run"]
    eventually(lambda: not left_behind("cockpit-d2"))


def test_overlapping_faults_may_name_a_directory_by_a_link(
    checkpoint: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(checkpoint.parent)
    read_only("cockpit-d22", checkpoint)
    read_only("cockpit-d23", link / checkpoint.name)
    assert run("storage", "off", "cockpit-d22", str(checkpoint.parent)).returncode == 0
    assert not is_writable(checkpoint.parent)
    assert run("storage", "off", "cockpit-d23", str(link)).returncode == 0
    assert is_writable(checkpoint.parent)
    link.unlink()


def test_a_fault_that_ends_by_itself_leaves_one_that_overlaps(checkpoint: Path) -> None:
    read_only("cockpit-d22", checkpoint)
    read_only("cockpit-d23", checkpoint, "0.3")
    eventually(lambda: not left_behind("cockpit-d23"))
    assert not is_writable(checkpoint.parent)
    run("storage", "off", "cockpit-d22", str(checkpoint.parent))
    assert is_writable(checkpoint.parent)
    eventually(lambda: not left_behind("cockpit-d22"))


@pytest.mark.parametrize("way", [("read-only", LONG), ("busy", LONG, "1")])
def test_a_storage_fault_that_starts_after_its_undo_fails(
    checkpoint: Path, way: tuple[str, ...]
) -> None:
    where = str(checkpoint.parent)
    assert run("storage", "off", "cockpit-d24", where, "refuse").returncode == 0
    late = run("storage", way[0], "cockpit-d24", where, *way[1:])
    assert late.returncode == 1
    assert "undone before it began" in late.stderr
    assert is_writable(checkpoint.parent)
    assert [path.name for path in checkpoint.parent.parent.iterdir()] == ["run"]
    assert not left_behind("cockpit-d24")


@pytest.mark.parametrize("way", [("read-only", LONG), ("busy", LONG, "1")])
def test_an_undo_that_refuses_ends_a_storage_fault_that_has_begun(
    checkpoint: Path, way: tuple[str, ...]
) -> None:
    where = str(checkpoint.parent)
    assert run("storage", way[0], "cockpit-d25", where, *way[1:]).returncode == 0
    assert run("storage", "off", "cockpit-d25", where, "refuse").returncode == 0
    assert is_writable(checkpoint.parent)
    assert [path.name for path in checkpoint.parent.parent.iterdir()] == ["run"]
    eventually(lambda: not left_behind("cockpit-d25"))


def test_a_folder_of_writers_that_cannot_be_removed_is_an_error(checkpoint: Path) -> None:
    where = str(checkpoint.parent)
    run("storage", "busy", "cockpit-d26", where, LONG, "1")
    source = pod_script.source("storage")
    stuck = """import shutil
def rmtree(folder, ignore_errors):
    if not ignore_errors:
        raise OSError(16, "Device or resource busy", str(folder))
shutil.rmtree = rmtree
"""
    for old, new in (("REMOVE_S = 10.0, 10.0", "REMOVE_S = 10.0, 0.2"), ("import shutil\n", stuck)):
        assert source.count(old) == 1
        source = source.replace(old, new)
    argv = [sys.executable, "-c", source, "off", "cockpit-d26", where]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
    assert done.returncode == 1
    assert "Device or resource busy" in done.stderr
    assert run("storage", "off", "cockpit-d26", where).returncode == 0
    eventually(lambda: not left_behind("cockpit-d26"))


@pytest.mark.skipif(os.geteuid() != 0, reason="another user changes the mode of the directory")
def test_directory_that_cannot_be_made_read_only_is_refused_and_nothing_is_left(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    where = str(checkpoint.parent)
    status = tmp_path_factory.mktemp("proc") / "status"
    status.write_text("Name: python\nCapEff:\t00000000a80425fb\n")  # as in a default container
    source = pod_script.source("storage").replace("/proc/self/status", str(status))
    refused = 'raise PermissionError(1, "Operation not permitted")'
    source = source.replace('fcntl.ioctl(fd, SET_FLAGS, struct.pack("l", value))', refused)
    assert refused in source
    for verb in (("check", "read-only", where), ("read-only", "cockpit-d27", where, LONG)):
        argv = [sys.executable, "-c", source, *verb]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
        assert done.returncode == 3, done.stdout  # not allowed
        assert ("LINUX_IMMUTABLE" in done.stderr) == (verb[0] == "check"), done.stderr
    assert [path.name for path in checkpoint.parent.parent.iterdir()] == ["run"]
    assert run("storage", "check", "read-only", where).returncode == 0
    argv = [sys.executable, "-c", source, "check", "busy", where]
    assert subprocess.run(argv, check=False, timeout=10).returncode == 0


def known(process: int) -> str:
    return run("filelimit", "check", str(process)).stdout.strip()


def test_overlapping_limits_are_lifted_with_the_last(process: int) -> None:
    resource.prlimit(process, resource.RLIMIT_FSIZE, (1_000_000, limits(process)[1]))
    run("filelimit", "on", "cockpit-d30", "4096", LONG, known(process))
    run("filelimit", "on", "cockpit-d31", "8192", LONG, known(process))
    assert limit(process) == 4096, "the lower one"
    run("filelimit", "off", "cockpit-d30", known(process))
    assert limit(process) == 8192
    run("filelimit", "off", "cockpit-d31", known(process))
    assert limit(process) == 1_000_000, "its own, and not the most that it may have"
    eventually(lambda: not left_behind("cockpit-d3"))
    assert not list(Path(tempfile.gettempdir()).glob(f".cockpit-filelimit-{process}-*"))


def test_a_limit_that_is_set_after_its_undo_fails(process: int) -> None:
    before = limit(process)
    run("filelimit", "off", "cockpit-d32", known(process), "refuse")
    late = run("filelimit", "on", "cockpit-d32", "4096", LONG, known(process))
    assert late.returncode == 1
    assert "undone before it began" in late.stderr
    assert limit(process) == before


def limits(pid: int) -> tuple[int, int]:
    return resource.prlimit(pid, resource.RLIMIT_FSIZE)
