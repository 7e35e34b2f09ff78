"""Scripts that need a container, in one that the test creates with kernel features."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.drills.engine import pod_script
from cockpit.drills.pod_scripts.linux import cgroup
from cockpit.drills.pod_scripts.linux.process import living
from tests.drills.script import TIMEOUT_S, eventually

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can make a container")
LIMIT = 256 << 20
EATING = "import sys,time; kept = bytearray(b'x') * (64 << 20); time.sleep(600)"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group with a memory limit, of either version; removed after the test."""
    parent = cgroup.ROOT if cgroup.IS_SECOND else cgroup.ROOT / "memory"
    folder = parent / f"cockpit-test-{os.getpid()}"
    folder.mkdir()
    limit = "memory.max" if cgroup.IS_SECOND else "memory.limit_in_bytes"
    (folder / limit).write_text(str(LIMIT))
    try:
        yield folder
    finally:
        for pid in (folder / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        eventually(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


def inside(group: Path, *argv: str) -> list[str]:
    """The command, in the group, and with the group as all that it sees of groups."""
    enter = f'echo $$ > {group}/cgroup.procs && mount --bind {group} {cgroup.MEMORY} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", enter, "sh", *argv]


def script(name: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, *pod_script.argv(name, *arguments)[1:])


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


def test_memory_that_runs_out_kills_the_rank_and_not_who_filled_it(
    group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    rank, other = (subprocess.Popen(inside(group, sys.executable, "-c", EATING)) for _ in range(2))
    both = {str(rank.pid), str(other.pid)}
    try:
        eventually(lambda: both <= set((group / "cgroup.procs").read_text().split()))
        used = run(inside(group, *script("memory_hog", "measure")))
        assert int(used.stdout.split()[0]) == LIMIT, used.stderr
        found = living(rank.pid)
        filled = run(
            inside(group, *script("memory_hog", "fill", "d1", "20", "100", "1", str(found)))
        )
        assert filled.returncode == 0, filled.stderr
        assert rank.wait(TIMEOUT_S) == -signal.SIGKILL
        eventually(lambda: not list(tmp_path.iterdir()))
        assert other.poll() is None, "it was as large, and liked better"
        left = run(inside(group, *script("memory_hog", "measure")))
        assert int(left.stdout.split()[1]) < LIMIT / 2, "all of it is given back"
    finally:
        for child in (rank, other):
            child.kill()
            child.wait()


def test_memory_that_is_let_go_before_it_runs_out_leaves_the_rank_as_it_was(
    group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    rank = subprocess.Popen(inside(group, sys.executable, "-c", EATING))
    score = Path(f"/proc/{rank.pid}/oom_score_adj")
    try:
        eventually(lambda: str(rank.pid) in (group / "cgroup.procs").read_text().split())
        before = score.read_text()
        found = living(rank.pid)
        run(inside(group, *script("memory_hog", "fill", "d1", "600", "70", "0.2", str(found))))
        assert score.read_text().strip() == "1000"
        use = (
            group / ("memory.current" if cgroup.IS_SECOND else "memory.usage_in_bytes")
        ).read_text
        eventually(lambda: int(use()) > 0.65 * LIMIT)
        assert "before its time" in run(inside(group, *script("release", "d1"))).stdout
        assert score.read_text() == before
        assert rank.poll() is None
        assert int(use()) < 0.65 * LIMIT
    finally:
        rank.kill()
        rank.wait()


def test_a_rank_that_is_first_to_die_by_itself_is_hit_but_not_by_two_faults_at_once(
    group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray gives its workers the highest score (worker_oom_score_adjustment)."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    rank = subprocess.Popen(inside(group, sys.executable, "-c", EATING))
    try:
        eventually(lambda: str(rank.pid) in (group / "cgroup.procs").read_text().split())
        Path(f"/proc/{rank.pid}/oom_score_adj").write_text("1000")
        found = str(living(rank.pid))
        first = run(inside(group, *script("memory_hog", "fill", "d1", "600", "40", "0.2", found)))
        assert first.returncode == 0, first.stderr
        second = run(inside(group, *script("memory_hog", "fill", "d2", "600", "40", "0.2", found)))
        assert "another memory fault lasts" in second.stderr
        assert "before its time" in run(inside(group, *script("release", "d1"))).stdout
    finally:
        rank.kill()
        rank.wait()


@pytest.mark.parametrize("verb", ["check", "kill"])
def test_a_container_ends_with_its_processes_after_it_has_answered(
    verb: str, tmp_path: Path
) -> None:
    """The first process waits for one of the others, as `ray start` and shells do."""
    ready = tmp_path / "ready"
    first = f"sleep 600 & sleep 600 & touch {ready}; wait -n; exit 7"
    container = subprocess.Popen(
        [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
            "-c",
            first,
        ]
    )
    try:
        eventually(ready.exists)
        (one,) = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
        enter = ["nsenter", "-t", one, "--mount", "--pid", "--"]
        answered = run([*enter, *script("container", verb)])
        assert answered.stdout == "2 processes\n", answered.stderr
        if verb == "kill":
            assert container.wait(TIMEOUT_S) == 7
        else:
            assert container.poll() is None
    finally:
        container.kill()
        container.wait()
