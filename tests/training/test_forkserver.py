"""The fork server without Ray. With it: tests/backends/test_fast_recovery.py."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from training.recovery import fork_safety, forkserver, private_socket
from training.recovery.imports import Competition, Pauses

ROOT = Path(__file__).parents[2]
REPORT = """
import json, os, sys
threads = "torch" in sys.modules and sys.modules["torch"].get_num_threads()
known = {name: name in sys.modules for name in ("plistlib", "wave")}
print(json.dumps({
    "pid": os.getpid(), "group": os.getpgid(0), "parent": os.getppid(),
    "argv": sys.argv, "path": sys.path[0], "given": os.environ.get("GIVEN"),
    "cwd": os.getcwd(), "known": known,
    "number": __import__("numpy").random.random(), "threads": threads,
}), flush=True)
sys.stdin.read()
sys.exit(3)
"""
END_S = 20.0
SERVER = """
import json, sys
from pathlib import Path
from training.recovery import fork_safety, forkserver
from training.recovery.libraries import Libraries
forkserver.run(Path(sys.argv[1]), lambda: Libraries(**json.loads(sys.argv[2])))
"""


@dataclass(frozen=True, slots=True)
class Node:
    session: Path
    raylet: subprocess.Popen[bytes]
    environment: dict[str, str]

    def serve(self, *names: str, variables: Mapping[str, str] | None = None) -> None:
        """Start a fork server, and wait until it is ready or has ended."""
        directory = forkserver.directory_of(self.session)
        libraries = json.dumps({"names": names, "variables": variables or {}})
        argv = [sys.executable, "-c", SERVER, str(directory), libraries]
        with (directory / "server.log").open("w") as log:
            started = subprocess.run(
                argv, stdout=subprocess.PIPE, stderr=log, env=self.environment, check=True
            )
        while forkserver._is_alive(int(started.stdout)):
            if forkserver._is_ready(directory, forkserver._name()):
                return
            time.sleep(0.02)

    def worker(self, cwd: Path, **variables: str) -> subprocess.Popen[str]:
        """As Ray starts one: `python -m training.recovery.forkserver default_worker.py …`."""
        script = self.session / "worker.py"
        script.write_text(REPORT)
        name = self.session / "sockets" / "raylet"
        argv = [sys.executable, "-m", "training.recovery.forkserver", str(script)]
        return subprocess.Popen(
            [*argv, f"--raylet-name={name}", "--more"],
            env={**self.environment, **variables},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    session = tmp_path / ("a-long-name" * 9)  # a socket's path ends at 107 characters
    session.mkdir()
    raylet = subprocess.Popen(["sleep", "600"])
    monkeypatch.setenv("RAY_JOB_ID", "01000000")
    monkeypatch.setenv("RAY_RAYLET_PID", str(raylet.pid))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    try:
        yield Node(session, raylet, dict(os.environ))
    finally:
        raylet.kill()
        raylet.wait()


def report(worker: subprocess.Popen[str]) -> dict[str, Any]:
    assert worker.stdout is not None
    said: dict[str, Any] = json.loads(worker.stdout.readline())
    return said


def end(pid: int) -> None:
    deadline = time.monotonic() + END_S
    while forkserver._is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} does not end"
        time.sleep(0.05)


def test_workers_are_forks_with_their_own_files_environment_and_random_numbers(
    node: Node, tmp_path: Path
) -> None:
    node.serve("plistlib", "torch", "no.such.module", variables={"OMP_NUM_THREADS": "1"})
    workers = [node.worker(tmp_path, GIVEN=str(number)) for number in range(2)]
    said = [report(worker) for worker in workers]
    assert [worker.wait(END_S) for worker in workers] == [0, 0], "only the forks remain"
    assert said[0]["parent"] == said[1]["parent"]
    assert "forkserver" in Path(f"/proc/{said[0]['parent']}/cmdline").read_text()
    assert said[0]["pid"] not in {worker.pid for worker in workers}
    assert [one["group"] for one in said] == [one["pid"] for one in said]
    assert [one["given"] for one in said] == ["0", "1"]
    assert said[0]["argv"][1:] == [f"--raylet-name={node.session}/sockets/raylet", "--more"]
    assert (said[0]["path"], said[0]["cwd"]) == (str(node.session), str(tmp_path))
    assert said[0]["known"] == {"plistlib": True, "wave": False}
    assert said[0]["number"] != said[1]["number"]
    assert [one["threads"] for one in said] == [1, 1], "as for a rank with one CPU"
    for worker, one in zip(workers, said, strict=True):
        worker.communicate()
        end(one["pid"])
    node.raylet.kill()
    node.raylet.wait()
    end(said[0]["parent"])
    assert not list(node.session.glob("cockpit-spares/*-*[0-9]")), "the socket is removed"


def test_worker_that_no_longer_waits_gets_no_fork(node: Node, tmp_path: Path) -> None:
    """It has become the worker itself, with the identifier that the fork would have, too."""
    node.serve("plistlib")
    first = node.worker(tmp_path)
    server = report(first)["parent"]
    os.kill(server, signal.SIGSTOP)
    reader, writer = os.pipe()
    with os.fdopen(reader) as output:
        directory = forkserver.directory_of(node.session)
        with private_socket.connected(directory, forkserver._name(), 5.0) as client:
            script = str(node.session / "worker.py")
            asked = {"argv": [script], "environment": node.environment, "cwd": str(tmp_path)}
            socket.send_fds(client, [json.dumps(asked).encode()], [0, writer, 2])
        os.close(writer)
        os.kill(server, signal.SIGCONT)
        assert output.read() == "", "it is closed, and nothing was written"
    first.communicate()


def test_of_a_fork_and_its_worker_that_were_both_stopped_one_continues() -> None:
    """The time of the fork is over when both continue."""

    class Late:
        """The end of the fork, which finds nothing at first."""

        def __init__(self, end: socket.socket) -> None:
            self.end, self.is_first = end, True

        def recv(self, *asked: int) -> bytes:
            if self.is_first:
                self.is_first = False
                raise TimeoutError
            return self.end.recv(*asked)

        def shutdown(self, how: int) -> None:
            self.end.shutdown(how)

    for has_taken in (True, False):
        fork, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with fork, worker:
            if has_taken:
                worker.send(forkserver._TAKEN)
            assert forkserver._is_taken(Late(fork)) is has_taken  # type: ignore[arg-type]
            with pytest.raises(BrokenPipeError):
                worker.send(forkserver._TAKEN)


def test_another_server_that_imports_more_takes_the_place_of_the_first_one(
    node: Node, tmp_path: Path
) -> None:
    node.serve("plistlib")
    before = node.worker(tmp_path)
    first = report(before)
    directory = forkserver.directory_of(node.session)
    for _ in range(2):
        forkserver.add(directory, ["wave", "no.such.module"])
    deadline = time.monotonic() + END_S
    successor = first["parent"]
    while successor == first["parent"]:
        assert time.monotonic() < deadline, "the second server does not answer"
        worker = node.worker(tmp_path)
        found = report(worker)
        worker.communicate()
        successor = found["parent"]
        assert found["known"] == {"plistlib": True, "wave": successor != first["parent"]}
    assert Path(f"/proc/{successor}/stat").read_text().split()[3] == str(first["parent"])
    assert forkserver._is_alive(first["parent"]), "it keeps its workers"
    before.communicate()
    node.raylet.kill()
    node.raylet.wait()
    for server in (successor, first["parent"]):
        end(server)
    assert not list(node.session.glob("cockpit-spares/*-*[0-9]")), "the socket is removed"


def test_worker_starts_as_usual_if_the_server_cannot_read_the_libraries(
    node: Node, tmp_path: Path
) -> None:
    worker = node.worker(tmp_path)  # without the address of Ray's key-value store
    said = report(worker)
    assert (said["pid"], said["parent"]) == (worker.pid, os.getpid())
    assert said["argv"][2:] == ["--more"]
    assert not any(said["known"].values())
    worker.communicate()
    assert worker.returncode == 3


def test_directory_that_another_user_may_write_to_is_not_used(node: Node, tmp_path: Path) -> None:
    node.serve()
    directory = node.session / "cockpit-spares"
    directory.chmod(0o777)
    worker = node.worker(tmp_path)
    said = report(worker)
    assert said["pid"] == worker.pid
    worker.communicate()
    with pytest.raises(PermissionError, match="open to other users"):
        forkserver.directory_of(node.session)


def test_server_without_memory_for_the_libraries_ends(
    node: Node, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(node.environment, "COCKPIT_RECOVERY_SPARE_MB", "1e9")
    directory = forkserver.directory_of(node.session)
    worker = node.worker(tmp_path)
    assert report(worker)["pid"] == worker.pid
    worker.communicate()
    assert not [*directory.glob("*.log")], "none is started"
    node.serve("plistlib")
    assert not forkserver._is_ready(directory, forkserver._name())
    assert "too little memory" in (directory / "server.log").read_text()


def test_server_whose_forks_would_have_the_same_random_identifiers_ends(
    node: Node, tmp_path: Path
) -> None:
    node.serve("ray.train")  # without `keep_ids_apart`: Ray Train declares actor classes
    directory = forkserver.directory_of(node.session)
    assert not forkserver._is_ready(directory, forkserver._name())
    assert "the same random identifiers" in (directory / "server.log").read_text()
    worker = node.worker(tmp_path)
    assert report(worker)["pid"] == worker.pid
    worker.communicate()
    assert not [*directory.glob("*-*[0-9].log")], "no server is started again"


def test_random_identifiers_of_forks_are_kept_apart() -> None:
    script = (
        "from training.recovery.fork_safety import keep_ids_apart, reason_not_to_fork\n"
        "keep_ids_apart()\n"
        "import ray.train, ray.data, torch._dynamo\n"
        "print('reason:', reason_not_to_fork())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "reason: \n", done.stderr


def test_process_that_has_opened_a_gpu_is_not_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_safety, "_are_ids_apart", lambda: True)
    (tmp_path / "0").symlink_to("/dev/null")
    (tmp_path / "1").touch()  # no link: the descriptor was closed
    assert fork_safety.reason_not_to_fork(tmp_path) == ""
    (tmp_path / "2").symlink_to("/dev/nvidiactl")
    assert fork_safety.reason_not_to_fork(tmp_path) == "a library has opened /dev/nvidiactl"


def test_imports_pause_for_four_fifths_of_the_time_while_others_want_the_cpu() -> None:
    used = iter([(0.0, False), (0.01, True), (0.1, True), (0.15, False), (9.0, True), (9.5, True)])
    pauses: list[float] = []
    finder = Pauses(lambda: next(used), pauses.append)
    for _ in range(5):
        finder.find_spec("any", None)
    assert pauses == pytest.approx([0.4, 2.0, 2.0])


def test_thread_competes_for_the_cpu_exactly_while_another_one_uses_it() -> None:
    cpu = min(os.sched_getaffinity(0))
    busy = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    found: list[bool] = []

    def watch() -> None:
        os.sched_setaffinity(0, {cpu})  # of this thread alone
        competition = Competition()
        other = subprocess.Popen(busy, stdout=subprocess.PIPE)
        try:
            assert other.stdout is not None
            other.stdout.readline()
            competition.used()
            deadline = time.thread_time() + 0.3
            while time.thread_time() < deadline:
                pass
            found.append(competition.used()[1])
        finally:
            other.kill()
            other.communicate()

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert found == [True]
