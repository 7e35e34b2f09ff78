"""Scripts that hit processes, on processes of this test: the right one, and no other."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from uuid import uuid4

import pytest

from cockpit.drills.engine import pod_script
from cockpit.drills.pod_scripts.linux import cgroup
from cockpit.drills.pod_scripts.linux.process import Failed, Process, is_alive, living, parsed
from tests.drills.script import eventually, run

RANK, IDLE = "ray::RayTrainWorker", "ray::IDLE"
CLUSTER = uuid4().hex[:8]
"""Unique: a test that runs beside these ends all processes of its own cluster."""
POD = {"COCKPIT_LOCAL_CLUSTER": CLUSTER, "COCKPIT_LOCAL_POD": "t-gpu-worker-1"}
NOBODY = 65534
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that records the active effects."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def start() -> Iterator[Start]:
    """A process with this name; all are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        title: str = RANK, *, environment: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        child = subprocess.Popen([title, "1000"], executable="/bin/sleep", env=environment, cwd=cwd)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()


def identity(child: subprocess.Popen[bytes]) -> Process:
    found = living(child.pid)
    assert found is not None
    return found


def state(process: Process) -> str:
    """One letter of proc(5): T is stopped."""
    text = Path(f"/proc/{process.pid}/stat").read_text()
    return text[text.rindex(")") + 2]


def becomes(process: Process, wanted: str) -> None:
    """A signal is taken when the process has its turn, and it runs a while before it sleeps."""
    eventually(lambda: state(process) == wanted)


def keeper(held: Path) -> Process:
    import json

    return parsed(json.loads(held.read_text())["keeper"])


# -- targets


def test_a_rank_is_found_by_its_number(start: Start) -> None:
    child = start()
    assert run("inspect", "rank", str(child.pid)).stdout.split() == [str(identity(child))]


def test_process_that_is_no_rank_is_refused(start: Start) -> None:
    idle, other, removed = start(IDLE), start("python"), start()
    removed.kill()
    removed.wait()
    for child, why in ((idle, "no rank"), (other, "no rank"), (removed, "has ended")):
        looked = run("inspect", "rank", str(child.pid))
        assert looked.returncode == 1
        assert why in looked.stderr


def test_a_program_is_found_by_its_name_and_not_by_its_arguments(start: Start) -> None:
    raylet, dashboard = start("/opt/ray/raylet"), start("dashboard.py")
    start("grep raylet")
    inside = POD | {"PATH": os.defpath}
    assert str(identity(raylet)) in run("inspect", "raylet").stdout.split()
    assert str(identity(dashboard)) in run("inspect", "dashboard.py").stdout.split()
    nobody = run("inspect", "raylet", environment=inside)
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "runs raylet" in nobody.stderr


def test_a_local_pod_has_only_its_own_processes(start: Start, tmp_path: Path) -> None:
    pod, other = tmp_path / "pod", tmp_path / "pod-2"
    pod.mkdir()
    other.mkdir()
    ours = (
        start(environment=POD),  # marked, regardless of its directory
        start(environment={}, cwd=pod),  # its title is written over its marks
    )
    strangers = (
        start(environment=POD | {"COCKPIT_LOCAL_POD": "t-gpu-worker-2"}, cwd=pod),
        start(environment=POD | {"COCKPIT_LOCAL_CLUSTER": "other"}, cwd=pod),
        start(environment={"HOME": "/root"}, cwd=pod),  # a user's shell in the pod's directory
        start(environment={}, cwd=other),
    )
    for child in ours:
        looked = run("inspect", "rank", str(child.pid), environment=POD, cwd=pod)
        assert looked.stdout.strip() == str(identity(child)), looked.stderr
    for child in strangers:
        looked = run("inspect", "rank", str(child.pid), environment=POD, cwd=pod)
        assert looked.returncode == 1
        assert "not of this pod" in looked.stderr


def test_a_kill_hits_the_process_that_was_found_and_no_other_with_its_number(
    start: Start,
) -> None:
    child = start()
    found = identity(child)
    missed = run("kill", f"{found.pid}:{found.start - 1}")
    assert missed.returncode == 1
    assert "ended before it was hit" in missed.stderr
    assert is_alive(found)
    assert run("kill", str(found)).returncode == 0
    assert child.wait() == -signal.SIGKILL


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start the script as somebody else")
def test_a_missing_right_is_reported_as_such(start: Start) -> None:
    found = identity(start())
    refused = subprocess.run(
        ["/usr/bin/python3", *pod_script.argv("kill", str(found))[1:]],
        user=NOBODY,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == pod_script.NOT_ALLOWED, refused.stderr
    assert is_alive(found)


# -- what lasts


def test_a_frozen_process_is_let_go_early_and_once_more_does_no_harm(
    start: Start, tmp_path: Path
) -> None:
    found = identity(start())
    assert run("stop", "d1", "600", "1", "0", str(found)).returncode == 0
    becomes(found, "T")
    (held,) = tmp_path.glob("*.json")
    holding = keeper(held)
    assert "before its time" in run("release", "d1").stdout
    becomes(found, "S")
    assert not is_alive(holding)
    assert not list(tmp_path.iterdir())
    assert "had ended" in run("release", "d1").stdout


def test_a_frozen_process_runs_again_by_itself(start: Start, tmp_path: Path) -> None:
    child = start()
    found = identity(child)
    run("stop", "d1", "0.5", "1", "0", str(found))
    _, status = os.waitpid(child.pid, os.WUNTRACED | os.WCONTINUED)  # it may run again already
    assert os.WIFSTOPPED(status) or os.WIFCONTINUED(status)
    becomes(found, "S")
    eventually(lambda: not list(tmp_path.iterdir()))


def test_a_slow_process_runs_and_stands_still_alternately(start: Start, tmp_path: Path) -> None:
    found = identity(start())
    run("stop", "d1", "600", "0.02", "0.02", str(found))
    seen: set[str] = set()
    deadline = time.monotonic() + 20
    while seen < {"S", "T"}:
        seen.add(state(found))
        assert time.monotonic() < deadline, seen
    run("release", "d1")
    becomes(found, "S")
    assert not list(tmp_path.iterdir())


def test_death_of_a_frozen_process_leaves_no_file(start: Start, tmp_path: Path) -> None:
    child = start()
    run("stop", "d1", "600", "0.05", "0", str(identity(child)))
    (held,) = tmp_path.glob("*.json")
    holding = keeper(held)
    child.kill()
    child.wait()
    eventually(lambda: not is_alive(holding) and not list(tmp_path.iterdir()))


def test_a_release_repairs_what_a_killed_keeper_left(start: Start, tmp_path: Path) -> None:
    found = identity(start())
    run("stop", "d1", "600", "1", "0", str(found))
    (held,) = tmp_path.glob("*.json")
    holding = keeper(held)
    os.kill(holding.pid, signal.SIGKILL)
    eventually(lambda: not is_alive(holding))
    becomes(found, "T")
    assert "its keeper had been killed" in run("release", "d1").stdout
    becomes(found, "S")
    assert not list(tmp_path.iterdir())


def test_release_continues_no_process_that_only_has_the_same_pid(
    start: Start, tmp_path: Path
) -> None:
    found = identity(start())
    run("stop", "d1", "600", "1", "0", str(found))
    (held,) = tmp_path.glob("*.json")
    holding = keeper(held)
    os.kill(holding.pid, signal.SIGKILL)
    eventually(lambda: not is_alive(holding))
    becomes(found, "T")
    before = Process(found.pid, found.start - 1)
    held.write_text(held.read_text().replace(str(found), str(before)))
    assert run("release", "d1").returncode == 0
    assert state(found) == "T", "it is another process, which somebody else has stopped"


def test_ended_process_cannot_be_frozen(start: Start, tmp_path: Path) -> None:
    child = start()
    found = identity(child)
    child.kill()
    child.wait()
    missed = run("stop", "d1", "600", "1", "0", str(found))
    assert missed.returncode == 1
    assert "it has ended" in missed.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ended", [signal.SIGTERM, signal.SIGKILL])
def test_busy_processes_end_with_their_parent(tmp_path: Path, ended: signal.Signals) -> None:
    assert "2 busy processes" in run("cpu_hog", "d1", "600", "2").stdout
    (held,) = tmp_path.glob("*.json")
    holding = keeper(held)
    children = Path(f"/proc/{holding.pid}/task/{holding.pid}/children").read_text().split()
    busy = [found for pid in children if (found := living(int(pid))) is not None]
    assert len(busy) == 2
    eventually(lambda: any(state(process) == "R" for process in busy))
    os.kill(holding.pid, ended)
    eventually(lambda: not any(map(is_alive, (holding, *busy))))
    run("release", "d1")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("script", "words"), [("cpu_hog", ("d1", "1", "0")), ("memory_hog", ("measure",))]
)
def test_a_local_pod_is_not_pressed_since_it_shares_its_machine(
    script: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    refused = run(script, *words, environment=POD, cwd=tmp_path)
    assert refused.returncode == 1
    assert "shares the" in refused.stderr


# -- what a container may have


def a_group(folder: Path, content: Mapping[str, str]) -> None:
    for name, text in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("is_second", [False, True])
def test_the_limits_of_a_container_are_read_in_either_version(
    is_second: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_second:
        memory = tmp_path
        limit, used, events, inactive = (
            *("memory.max", "memory.current", "memory.events"),
            "inactive_file",
        )
        cpu = {"cpu.max": "150000 100000\n"}
    else:
        memory = tmp_path / "memory"
        limit, used, events, inactive = (
            *("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
            "total_inactive_file",
        )
        cpu = {"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}
    a_group(memory, {limit: "4096000\n", used: "3000\n", events: "under_oom 0\noom_kill 2\n"})
    a_group(memory, {"memory.stat": f"cache 9\n{inactive} 1000\n"})
    a_group(tmp_path, cpu)
    monkeypatch.setattr(cgroup, "IS_SECOND", is_second)
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "MEMORY", memory)
    assert cgroup.memory_limit() == 4096000
    assert cgroup.memory_used() == 2000
    assert cgroup.killed_for_memory() == 2
    assert (cgroup.cpus(8), cgroup.cpus(1)) == (2, 1)
    a_group(memory, {limit: "max\n" if is_second else f"{1 << 62}\n"})
    with pytest.raises(Failed, match="no memory limit"):
        cgroup.memory_limit()
    a_group(tmp_path, {"cpu.max": "max 100000\n", "cpu/cpu.cfs_quota_us": "-1\n"})
    assert cgroup.cpus(8) == 8


# -- how they are sent

SCRIPTS = sorted(
    path.name.removesuffix(".py")
    for path in (files("cockpit.drills") / "pod_scripts").iterdir()
    if path.name.endswith(".py") and path.name != "__init__.py"
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_one_text_for_python_3_9_with_each_name_once(script: str) -> None:
    text = pod_script.source(script)
    assert "from cockpit." not in text
    module = ast.parse(text, feature_version=(3, 9))
    names = [node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert len(names) == len(set(names)), names
    assert len(text) < 100_000, "the kernel takes no more than 128 KiB in one argument"


def test_a_fault_that_starts_after_its_undo_does_not_begin(start: Start, tmp_path: Path) -> None:
    found = identity(start())
    assert "may not begin" in run("release", "d1", "refuse").stdout
    assert "may not begin" not in run("release", "d2").stdout
    late = run("stop", "d1", "600", "1", "0", str(found))
    assert late.returncode == 1
    assert "undone before it began" in late.stderr
    assert state(found) != "T"
    assert not list(tmp_path.iterdir())


def test_an_undo_that_refuses_ends_what_has_begun(start: Start, tmp_path: Path) -> None:
    found = identity(start())
    run("stop", "d1", "600", "1", "0", str(found))
    assert "before its time" in run("release", "d1", "refuse").stdout
    becomes(found, "S")
    assert not list(tmp_path.iterdir())


def test_an_undo_that_refuses_may_be_repeated(tmp_path: Path) -> None:
    assert "may not begin" in run("release", "d1", "refuse").stdout
    assert "had not begun" in run("release", "d1", "refuse").stdout
    assert len(list(tmp_path.iterdir())) == 1
    assert "had not begun" in run("release", "d1").stdout
    assert not list(tmp_path.iterdir())
