"""Spaces: their processes end with them, and nothing remains on the machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.build import CACHE
from tests.cluster.leftovers import LINK, PREFIX, Owner, Record, clear, hierarchies
from tests.cluster.space import Space, kept
from tests.cluster.traces import Traces

ROOT = Path(__file__).parents[2]
_OPEN = """
import sys
from tests.cluster.space import Space
space = Space.open(keep=sys.argv[1] == "keep")
space.start("sleeper", ["sleep", "1000"])
print(space.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(programs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces of other tests, and those that a user keeps, are not checked."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("COCKPIT_TESTBED_CACHE", str(CACHE))


@pytest.fixture
def host_rules() -> Iterator[None]:
    """The host's packet rules and named network namespaces do not change."""
    before = _host_rules()
    yield
    assert _host_rules() == before


def test_a_closed_space_leaves_nothing(host_rules: None) -> None:
    space = Space.open()
    traces = Traces.of(space)
    space.start("sleeper", ["sleep", "1000"])
    space.run("nft", "add table inet testbed")
    space.run("mount", "-t", "tmpfs", "tmpfs", space.folder / "var-work")
    for hierarchy in hierarchies():
        (hierarchy / space.group / "pods" / "pod").mkdir(parents=True)
    assert {text.split()[0] for text in traces.seen()} == {"process", "group", "folder", "device"}
    space.close()
    assert traces.seen() == []


@pytest.mark.slow
def test_a_space_ends_with_the_killed_process_that_opened_it() -> None:
    with _opener("") as opener:
        space = _opened(opener)
        traces = Traces.of(space)
        opener.kill()
        opener.wait()
        _until_gone(space.pid)
    assert [text for text in traces.seen() if text.startswith("process")] == []
    Space.open().close()
    assert traces.seen() == []


@pytest.mark.slow
def test_a_kept_space_outlives_the_process_that_opened_it() -> None:
    with _opener("keep") as opener:
        space = _opened(opener)
        opener.kill()
        opener.wait()
    [found] = kept()
    assert found.folder == space.folder
    _until(lambda: "sleep" in _commands(found))
    traces = Traces.of(found)
    found.close()
    assert traces.seen() == []
    assert kept() == []


@pytest.mark.slow
def test_the_next_space_clears_what_a_killed_one_left() -> None:
    with _opener("keep") as opener:
        space = _opened(opener)
    traces = Traces.of(space)
    os.kill(space.pid, signal.SIGKILL)
    _until_gone(space.pid)
    assert traces.folder.exists()
    half_made = space.folder.with_name(f"{space.folder.name}x")
    half_made.mkdir()
    following = Space.open()
    assert not traces.folder.exists()
    assert not half_made.exists()
    following.close()
    assert traces.seen() == []


def test_clearing_a_leftover_spares_the_device_of_a_space_that_reused_its_number(
    tmp_path: Path,
) -> None:
    space = Space.open()
    try:
        leftover = tmp_path / f"{PREFIX}leftover"
        leftover.mkdir()
        ended = Owner(1, "not when it started")
        Record(space.number, ended, ended, keep=False).write(leftover)
        clear()
        assert not leftover.exists()
        assert Path(f"/sys/class/net/{LINK}{space.number}").exists()
    finally:
        space.close()


@pytest.mark.slow
def test_two_spaces_do_not_see_each_other() -> None:
    one, other = Space.open(), Space.open()
    try:
        assert one.address != other.address
        one.start("sleeper", ["sleep", "1000"])
        _until(lambda: "sleep" in _commands(one))
        assert "sleep" not in _commands(other)
        assert other.address not in one.run("ip", "-brief", "address").stdout
    finally:
        one.close()
        other.close()


def _opener(argument: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _OPEN, argument],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _opened(opener: subprocess.Popen[str]) -> Space:
    assert opener.stdout is not None
    folder = Path(opener.stdout.readline().strip())
    return Space.at(folder)


def _until_gone(pid: int) -> None:
    _until(lambda: not Path(f"/proc/{pid}").exists())


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def _commands(space: Space) -> list[str]:
    """Of the processes inside."""
    return space.run("sh", "-c", "cat /proc/[0-9]*/comm").stdout.split()


def _host_rules() -> list[str]:
    rules = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True)
    names = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True)
    of_others = re.compile(r"cockpit-[ab]\d+\b")  # tests/drills/test_network_script.py
    found = (line for line in names.stdout.splitlines() if not of_others.match(line))
    return [*rules.stdout.splitlines(), *found]
