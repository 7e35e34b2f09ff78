"""The process that imports while Ray starts on a pod. The last test is with Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("ray")

from tests.drills.script import eventually
from tests.training.cluster import Cluster, drive
from training.recovery import early_imports

ROOT = Path(__file__).parents[2]
JOB = "01000000"
PROCESS = """
import json, sys
from pathlib import Path
from training.recovery import early_imports
from training.recovery.libraries import Libraries
early_imports.import_early(Path(sys.argv[1]), "01000000", Libraries(**json.loads(sys.argv[2])))
"""
SERVER = """
import json, os, sys
names = "wave", "training.stop", "training.recovery.early_imports"
known = {name: name in sys.modules for name in names}
about = {"argv": sys.argv[1:], "cwd": os.getcwd(), "given": os.environ["RAY_GIVEN"], "known": known}
print(json.dumps(about), file=sys.stderr)
print(os.getpid(), flush=True)
"""
"""In the place of the job's own `training.recovery.forkserver`."""


@pytest.fixture(autouse=True)
def of_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is a worker of the job, which has its own version of the package."""
    code = tmp_path / "code" / "training" / "recovery"
    code.mkdir(parents=True)
    for package in (code.parent, code):
        (package / "__init__.py").touch()
    (code / "forkserver.py").write_text(SERVER)
    (tmp_path / "pod").mkdir(mode=0o700)
    monkeypatch.syspath_prepend(tmp_path / "code")
    monkeypatch.setenv("RAY_JOB_ID", JOB)
    monkeypatch.setenv("RAY_GIVEN", "of the job")
    monkeypatch.setenv(early_imports.DIRECTORY, str(tmp_path / "pod"))


@contextmanager
def process(directory: Path, names: Sequence[str] = (), **variables: str) -> Iterator[Path]:
    """A process that imports early and can be asked, and the file of its output."""
    log = directory / "log"
    given = {name: value for name, value in os.environ.items() if name != "RAY_GIVEN"}
    started = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(directory), json.dumps(about(names))],
        env={**given, "PYTHONPATH": str(ROOT), **variables},
        stdin=subprocess.DEVNULL,
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        while not (directory / "socket").exists() and started.poll() is None:
            time.sleep(0.02)
        yield log
    finally:
        started.kill()
        started.wait()


def about(names: Sequence[str]) -> dict[str, object]:
    return {"names": names, "variables": {"OMP_NUM_THREADS": "1"}}


def asked(log: Path) -> int:
    with log.open("w") as file:
        return early_imports.request_server(["--serve", "here"], file.fileno())


def test_it_becomes_the_fork_server_with_the_code_of_the_job(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with process(tmp_path / "pod", ["wave", "no.such.module", "training.stop"]) as own:
        pid = asked(log)
        found = json.loads(log.read_text())
    assert own.read_text() == ""
    assert pid > 1
    assert found == {
        "argv": ["--serve", "here"],
        "cwd": str(Path.cwd()),
        "given": "of the job",
        "known": {"wave": True, "training.stop": False, "training.recovery.early_imports": False},
    }


def test_it_is_no_server_of_a_job_with_other_variables_and_does_not_print_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process(tmp_path / "pod", OMP_NUM_THREADS="2") as log:
        monkeypatch.setenv("TORCH_LOGS", "secret")
        with pytest.raises(ConnectionAbortedError, match="does not fit"):
            asked(tmp_path / "server.log")
        with pytest.raises(OSError, match="refused"):
            asked(tmp_path / "server.log")  # it has ended
    assert log.read_text() == "the job has other variables: OMP_NUM_THREADS, TORCH_LOGS\n"


def test_it_is_no_server_of_another_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with process(tmp_path / "pod") as log:
        monkeypatch.setenv("RAY_JOB_ID", "02000000")
        with pytest.raises(ConnectionAbortedError, match="does not fit"):
            asked(tmp_path / "server.log")
    assert "RAY_JOB_ID" in log.read_text()


def test_it_is_no_server_for_a_worker_that_waits_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has started another one."""
    begin = tmp_path / "begin"
    slow = "import time\nfrom pathlib import Path\n"
    slow += f"while not Path({str(begin)!r}).exists(): time.sleep(0.02)\n"
    (tmp_path / "slow.py").write_text(slow)
    monkeypatch.setattr(early_imports, "START_S", 0.2)
    with process(tmp_path / "pod", ["slow"], PYTHONPATH=f"{ROOT}:{tmp_path}") as log:
        with pytest.raises(TimeoutError):
            asked(tmp_path / "server.log")
        begin.touch()
        eventually(lambda: "waits no longer" in log.read_text())
    assert (tmp_path / "server.log").read_text() == ""


def test_nothing_is_imported_without_memory_for_it(tmp_path: Path) -> None:
    with process(tmp_path / "pod", COCKPIT_RECOVERY_SPARE_MB="1e9") as log:
        with pytest.raises(FileNotFoundError):
            asked(tmp_path / "server.log")
        assert "too little memory" in log.read_text()


def test_pod_without_such_a_process_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(early_imports.DIRECTORY)
    with pytest.raises(FileNotFoundError, match="is not set"):
        asked(tmp_path / "server.log")


def test_socket_in_a_directory_of_other_users_is_not_used(tmp_path: Path) -> None:
    with process(tmp_path / "pod"):
        (tmp_path / "pod").chmod(0o777)
        with pytest.raises(PermissionError, match="open to other users"):
            asked(tmp_path / "server.log")


DRIVER = """
import os, subprocess, sys, time
from pathlib import Path
import ray
from training.recovery import forkserver, libraries

pod = Path(sys.argv[1])
variables = {"COCKPIT_EARLY_IMPORTS": str(pod), "PYTHONPATH": os.environ["PYTHONPATH"]}
ray.init(runtime_env={"py_executable": forkserver.COMMAND, "env_vars": variables})
libraries.publish(libraries.of_ranks(["wave", "ray.train.torch"], {"CPU": 1}))
gcs = ray.get_runtime_context().gcs_address
argv = [sys.executable, "-m", "training.recovery.early_imports", gcs, str(pod)]
with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as started:
    while not (pod / "socket").exists() and started.poll() is None:
        time.sleep(0.05)

    @ray.remote
    def worker():
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode()
        return parent.split("\\0"), [name in sys.modules for name in ("wave", "torch")]

    parent, known = ray.get(worker.remote())
print("parent", "training.recovery.early_imports" in parent, known, flush=True)
"""


@pytest.mark.slow
@pytest.mark.ray
def test_workers_of_the_newest_job_are_forks_of_it(cluster: Cluster, tmp_path: Path) -> None:
    outcome = drive(cluster, ["-c", DRIVER, str(tmp_path / "pod")])
    assert outcome.code == 0, outcome.output[-4000:]
    assert "parent True [True, True]" in outcome.output
