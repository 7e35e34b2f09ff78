"""Which tests run beside others, and which alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests import lanes

ROOT = Path(__file__).parent.parent


@pytest.fixture
def turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[lanes.Turn, lanes.Turn]:
    """Two turns in a directory that the running test has not locked."""
    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(lanes, "ROOT", tmp_path / "tests")
    return lanes.Turn(), lanes.Turn()


def waiting(directory: Path) -> bool:
    """Return whether someone waits for a lock of `directory`; proc(5) marks it with `->`."""
    inode = f":{directory.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").open())


def test_tests_run_beside_each_other(turns: tuple[lanes.Turn, lanes.Turn]) -> None:
    for turn in turns:
        turn.take()
    for turn in turns:
        turn.end()


def test_a_test_that_runs_alone_waits_until_the_others_have_ended(
    turns: tuple[lanes.Turn, lanes.Turn],
) -> None:
    one, other = turns
    one.take()
    other.take()
    alone = threading.Event()

    def again() -> None:
        other.take(alone=True)
        alone.set()

    thread = threading.Thread(target=again)
    thread.start()
    while not waiting(lanes.ROOT):
        time.sleep(0.01)
    assert not alone.is_set()
    one.end()
    thread.join(10)
    assert alone.is_set()
    other.end()


def test_no_test_begins_after_the_time_limit_and_each_is_listed() -> None:
    test = "tests/test_house.py"
    environment = os.environ | {"CI": "true", lanes.BEGIN_UNTIL_S: str(time.time() - 1.0)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Tests {lanes.NOT_BEGUN} (" in done.stdout
    assert f"\n  {test}::" in done.stdout
    assert "passed" not in done.stdout


def test_lane_of_a_marker_imports_only_the_files_that_contain_its_name(tmp_path: Path) -> None:
    """A file without the name is not imported: this one would fail."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_ignore_collect\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow: of the other lane\n")
    (tmp_path / "test_other.py").write_text("raise AssertionError('imported')\n")
    text = "import pytest\n@pytest.mark.slow\ndef test_one() -> None:\n    pass\n"
    (tmp_path / "test_this.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "slow"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
