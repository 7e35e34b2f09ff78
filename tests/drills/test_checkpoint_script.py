"""The script that damages a checkpoint of this test's and restores it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit.drills.engine import pod_script
from tests.drills.script import eventually, run

NAME = "cockpit-d1"
STOPS = "            os.kill(os.getpid(), 19)\n"
"""SIGSTOP after the first block was copied."""


def content(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def left(checkpoint: Path) -> list[str]:
    return [path.name for path in checkpoint.parent.iterdir()]


def restore(checkpoint: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run("checkpoint", "restore", NAME, str(checkpoint), *more)


def changed(old: str, new: str) -> str:
    """The text of the script with one place of it changed."""
    source = pod_script.source("checkpoint")
    assert source.count(old) == 1, old
    return source.replace(old, new)


def begun(checkpoint: Path) -> subprocess.Popen[str]:
    """A damage that has copied one block and is stopped."""
    source = changed("            size += len(block)\n", f"            size += len(block)\n{STOPS}")
    argv = [sys.executable, "-c", source, "corrupt", NAME, str(checkpoint)]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return process


@pytest.mark.parametrize("way", ["corrupt", "delete"])
def test_a_damaged_checkpoint_is_restored(checkpoint: Path, way: str) -> None:
    before = content(checkpoint)
    done = run("checkpoint", way, NAME, str(checkpoint))
    assert done.returncode == 0, done.stderr
    assert content(checkpoint) != before
    for _ in range(2):  # the second does nothing
        assert restore(checkpoint).returncode == 0
        assert content(checkpoint) == before
    assert left(checkpoint) == ["checkpoint_1"]


def test_mode_and_time_of_a_restored_file_are_as_before(checkpoint: Path) -> None:
    path = checkpoint / "rank_0" / "model.pt"
    path.chmod(0o640)
    os.utime(path, (1e9, 1e9))
    before = path.stat()
    run("checkpoint", "corrupt", NAME, str(checkpoint))
    restore(checkpoint)
    after = path.stat()
    assert (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)


def test_a_copy_that_does_not_fit_damages_nothing_and_is_not_restored(checkpoint: Path) -> None:
    """A limit of 4 KiB per file simulates a disk that is full before the copy is complete."""
    before = content(checkpoint)
    argv = [sys.executable, *pod_script.argv("checkpoint", "corrupt", NAME, str(checkpoint))[1:]]
    limited = ["bash", "-c", 'ulimit -f 4; exec "$@"', "-", *argv]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert content(checkpoint) == before
    assert restore(checkpoint).returncode == 0
    assert content(checkpoint) == before
    assert left(checkpoint) == ["checkpoint_1"]


RECORDED = """
import os, sys
from pathlib import Path

def recorded(name, real, shown):
    def call(*args):
        print(name, shown(args[0]), file=sys.stderr)
        return real(*args)
    return call

def opened(fd):
    return os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))

os.fsync = recorded("sync", os.fsync, opened)
Path.replace = recorded("rename", Path.replace, lambda path: path.name)
Path.unlink = recorded("remove", Path.unlink, lambda path: path.name)
"""
"""Prints what the script syncs, renames and removes."""


def test_copies_and_their_marker_are_on_disk_before_a_file_is_removed(checkpoint: Path) -> None:
    """A power loss at any moment leaves the original, or a whole copy that is marked as such."""
    source = pod_script.source("checkpoint").replace(
        "import errno", f"exec({RECORDED!r})\nimport errno", 1
    )
    argv = [sys.executable, "-c", source, "delete", NAME, str(checkpoint)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[:8] == [
        "sync model.pt.part",
        "rename model.pt.part",
        "sync rank_0",
        "sync files",
        "sync complete.json.part",
        "rename complete.json.part",
        f"sync .{NAME}",
        f"sync {checkpoint.parent.name}",
    ]
    assert "remove model.pt" in done.stderr.splitlines()[8:]


def test_a_copy_that_was_killed_half_way_is_ignored(checkpoint: Path) -> None:
    before = content(checkpoint)
    process = begun(checkpoint)
    process.kill()
    process.communicate()
    assert list((checkpoint.parent / f".{NAME}").rglob("*.part")), "the partial copy is there"
    assert restore(checkpoint).returncode == 0
    assert content(checkpoint) == before
    assert left(checkpoint) == ["checkpoint_1"]


def test_a_restore_stops_a_copy_that_continues_and_waits_for_its_end(checkpoint: Path) -> None:
    before = content(checkpoint)
    process = begun(checkpoint)
    argv = [sys.executable, *pod_script.argv("checkpoint", "restore", NAME, str(checkpoint))[1:]]
    undoing = subprocess.Popen(argv)
    eventually((checkpoint.parent / f".{NAME}" / "undone").exists)
    assert undoing.poll() is None
    process.send_signal(signal.SIGCONT)
    _, text = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "undone before it began" in text
    assert undoing.wait(timeout=20) == 0
    assert content(checkpoint) == before
    assert left(checkpoint) == ["checkpoint_1"]


def test_a_damage_that_starts_after_its_undo_fails(checkpoint: Path) -> None:
    before = content(checkpoint)
    assert restore(checkpoint, "refuse").returncode == 0
    late = run("checkpoint", "corrupt", NAME, str(checkpoint))
    assert late.returncode == 1
    assert "undone before it began" in late.stderr
    assert content(checkpoint) == before
    assert left(checkpoint) == ["checkpoint_1"]


def test_a_copy_that_was_altered_is_not_restored(checkpoint: Path) -> None:
    run("checkpoint", "corrupt", NAME, str(checkpoint))
    damaged = content(checkpoint)
    copy = checkpoint.parent / f".{NAME}" / "files" / "rank_0" / "model.pt"
    copy.write_bytes(b"x" * copy.stat().st_size)
    done = restore(checkpoint)
    assert done.returncode == 1
    assert "is not as it was made" in done.stderr
    assert content(checkpoint) == damaged
    assert copy.exists(), "somebody may want to look at it"


def test_a_copy_that_was_altered_keeps_no_other_file_from_its_restore(checkpoint: Path) -> None:
    before = content(checkpoint)
    run("checkpoint", "delete", NAME, str(checkpoint))
    copies = [p for p in (checkpoint.parent / f".{NAME}" / "files").rglob("*") if p.is_file()]
    altered = min(copies)
    altered.write_bytes(b"x" * altered.stat().st_size)
    done = restore(checkpoint)
    assert done.returncode == 1
    assert done.stderr.count("is not as it was made") == 1
    assert len(content(checkpoint)) == len(before) - 1 > 0
    assert altered.exists()


@pytest.mark.parametrize("way", ["corrupt", "delete"])
def test_a_file_that_the_run_wrote_since_is_left_as_it_is(checkpoint: Path, way: str) -> None:
    run("checkpoint", way, NAME, str(checkpoint))
    path = checkpoint / "rank_0" / "model.pt"
    path.write_bytes(b"a new checkpoint" * 640)
    done = restore(checkpoint)
    assert done.returncode == 0
    assert "has changed since it was damaged" in done.stdout
    assert path.read_bytes() == b"a new checkpoint" * 640
    assert left(checkpoint) == ["checkpoint_1"]


def test_a_restore_that_was_killed_half_way_is_finished_by_the_next(checkpoint: Path) -> None:
    before = content(checkpoint)
    run("checkpoint", "delete", NAME, str(checkpoint))
    killed = changed("    sync(path.parent)\n    return", "    os.kill(os.getpid(), 9)\n    return")
    argv = [sys.executable, "-c", killed, "restore", NAME, str(checkpoint)]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL
    assert restore(checkpoint).returncode == 0
    assert content(checkpoint) == before
    assert left(checkpoint) == ["checkpoint_1"]


def test_a_file_that_another_checkpoint_links_to_is_damaged_in_this_one_only(
    checkpoint: Path,
) -> None:
    path = checkpoint / "rank_0" / "model.pt"
    other = checkpoint.parent / "other.pt"
    other.hardlink_to(path)
    before = other.read_bytes()
    assert run("checkpoint", "corrupt", NAME, str(checkpoint)).returncode == 0
    assert path.read_bytes() != before == other.read_bytes()
    restore(checkpoint)
    assert path.read_bytes() == before


def test_a_link_out_of_the_checkpoint_is_not_followed(checkpoint: Path) -> None:
    outside = checkpoint.parent / "weights.bin"
    outside.write_bytes(b"w" * 100_000)
    (checkpoint / "link").symlink_to(outside)
    for way in ("corrupt", "delete"):
        run("checkpoint", way, NAME, str(checkpoint))
        assert outside.read_bytes() == b"w" * 100_000
        assert (checkpoint / "link").is_symlink()
        restore(checkpoint)


@pytest.mark.parametrize("verb", [("check", "delete"), ("delete", NAME)])
def test_free_space_is_required_for_the_copies_and_the_next_checkpoint(
    checkpoint: Path, verb: tuple[str, str]
) -> None:
    before = content(checkpoint)
    source = changed("room.f_bavail * room.f_frsize", "20_000")  # the checkpoint has 10,242 bytes
    argv = [sys.executable, "-c", source, *verb, str(checkpoint)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "are needed for the copies" in done.stderr
    assert content(checkpoint) == before
    assert left(checkpoint) == ["checkpoint_1"]


def test_a_checkpoint_that_was_moved_is_not_created_again(checkpoint: Path) -> None:
    run("checkpoint", "corrupt", NAME, str(checkpoint))
    checkpoint.rename(checkpoint.with_name("damaged"))
    assert restore(checkpoint).returncode == 0
    assert left(checkpoint) == ["damaged"]


def test_a_missing_checkpoint_is_an_error(tmp_path: Path) -> None:
    done = run("checkpoint", "check", "corrupt", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "no checkpoint" in done.stderr
