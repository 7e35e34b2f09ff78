"""One real Ray head for the tests of jobs and telemetry, with a separate directory and token.

The tests do not connect to it: they start drivers as processes and read the stream from its file.
The head and each driver have a session of their own, as pods of local clusters have: Linux divides
the CPU among sessions (autogroup), and they would share one with all processes that run tests.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest

from training.telemetry.names import CALLBACK, FILE_PATTERN, TUNE_CALLBACK
from training.telemetry.wire import Record, Run, WireError, decode

T = TypeVar("T")
ROOT = Path(__file__).parent.parent.parent
HOST = """
import ray, sys
context = ray.init(
    address="local",
    num_cpus=4,
    include_dashboard=False,
    _temp_dir=sys.argv[1],
    _system_config={"metrics_report_interval_ms": 1000},  # instead of 10 s
)
print(context["address"], flush=True)
sys.stdin.read()
"""

EACH = """
import importlib, json, os, runpy, sys, time, traceback

environment, begun = dict(os.environ), time.monotonic()
for name, program, *argv in json.loads(sys.argv[1]):
    os.environ.update(environment)  # a search removes its callback
    sys.argv = [program, *argv]
    print(f"PROGRAM {name}", flush=True)
    code = 0
    try:
        if program.endswith(".py"):
            runpy.run_path(program, run_name="__main__")
        else:
            importlib.import_module(program).main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, flush=True)
    except Exception:
        code = 1
        traceback.print_exc(file=sys.stdout)
    print(f"\\nEXIT {name} {code} after {time.monotonic() - begun:.0f} s in all", flush=True)
"""


@dataclass(frozen=True)
class Cluster:
    directory: Path
    """For what one module writes: names of its runs do not meet those of another module."""
    logs: Path
    environment: dict[str, str]

    def streams(self) -> set[Path]:
        return set(self.logs.glob(FILE_PATTERN))


@dataclass(frozen=True)
class Outcome:
    code: int
    output: str
    records: list[Record]

    def of(self, name: str) -> Outcome:
        """One program of `drive_each`: its exit code, the driver's output, its run's records.

        Output of ranks reaches the driver later, perhaps while the next program runs: see the
        complete output.
        """
        _, _, rest = self.output.partition(f"PROGRAM {name}\n")
        output, _, rest = rest.partition(f"EXIT {name} ")
        runs = {
            record.body.run
            for record in self.records
            if isinstance(record.body, Run) and record.body.name == name
        }
        records = [record for record in self.records if getattr(record.body, "run", "") in runs]
        return Outcome(int(rest.split()[0]), output, records)


def bodies(records: list[Record], kind: type[T]) -> list[T]:
    return [record.body for record in records if isinstance(record.body, kind)]


@contextmanager
def started() -> Iterator[Cluster]:
    """Ends with the process that holds it: its standard input is closed."""
    # A short path: Ray's sockets lie below it, and a socket's path ends at 107 characters.
    with TemporaryDirectory(prefix="ct", dir="/tmp", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        token = directory / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        temporary = directory / "tmp"  # killed ranks leave files in it
        temporary.mkdir()
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("RAY_")},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "TMPDIR": str(temporary),
            # Instead of 30 and 5: other programs use the CPUs.
            "RAY_raylet_start_wait_time_s": "300",
            "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "300",
        }
        host = subprocess.Popen(
            [sys.executable, "-c", HOST, str(directory / "ray")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(directory / "host.log").open("w"),
            env=environment,
            text=True,
            start_new_session=True,
        )
        assert host.stdin is not None
        assert host.stdout is not None
        try:
            address = host.stdout.readline().strip()
            assert address, (directory / "host.log").read_text()
            run = {
                "PYTHONPATH": str(ROOT),  # as a job's working directory is
                "RAY_ADDRESS": address,
                "RAY_TRAIN_CALLBACKS": CALLBACK,
                "RAY_TUNE_CALLBACKS": TUNE_CALLBACK,
                "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
            }
            # Resolved once: each driver that connects creates the link again, and it is missing
            # then.
            logs = (directory / "ray" / "session_latest").resolve(strict=True) / "logs"
            yield Cluster(directory, logs, environment | run)
        finally:
            host.stdin.close()
            try:
                host.wait(30)
            except subprocess.TimeoutExpired:
                host.kill()


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[Cluster]:
    """Started by the first test that needs it; a head and its processes take 5 to 10 s."""
    with started() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(shared_ray: Cluster, request: pytest.FixtureRequest) -> Cluster:
    """The shared head, and a directory for this module. Jobs of a module end with its drivers."""
    directory = shared_ray.directory / request.path.stem.removeprefix("test_")
    directory.mkdir()
    return replace(shared_ray, directory=directory)


def drive(
    cluster: Cluster,
    argv: list[str],
    watch: Callable[[list[Record]], None] = lambda records: None,
    limit_s: float = 1000,
    until: Callable[[list[Record]], bool] = lambda records: False,
) -> Outcome:
    """Run a driver to its end, or kill it `until` so; `watch` sees the stream grow."""
    before = cluster.streams()
    reader = Reader()
    log = cluster.directory / f"{len(before)}.log"
    process = subprocess.Popen(
        [sys.executable, *argv],
        cwd=ROOT,
        env=cluster.environment,
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    deadline = time.monotonic() + limit_s
    try:
        while process.poll() is None:
            assert time.monotonic() < deadline, _unfinished(log.read_text(), limit_s)
            records = reader.read(cluster.streams() - before)
            watch(records)
            if until(records):
                break
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    return Outcome(process.returncode, log.read_text(), reader.read(cluster.streams() - before))


def _unfinished(output: str, limit_s: float) -> str:
    """Return which programs ended, and when, then the end of the output."""
    ends = [line for line in output.splitlines() if line.startswith("EXIT ")]
    return "\n".join([f"not ended after {limit_s:g} s", *ends, output[-4000:]])


def drive_each(cluster: Cluster, programs: Mapping[str, list[str]]) -> Outcome:
    """Run programs one after the other in one driver, which imports torch and Ray once.

    `programs` are argv by name, which is the name of the run too: a module that has `main`, or a
    script's path, and its arguments. `Outcome.of` separates them.
    """
    argv = json.dumps([[name, *argv] for name, argv in programs.items()])
    outcome = drive(cluster, ["-c", EACH, argv], limit_s=2200)
    assert outcome.code == 0, outcome.output[-4000:]
    return outcome


class Reader:
    """Decodes each line of the streams once, however often they are read."""

    def __init__(self) -> None:
        self._ends = dict[Path, int]()
        self._records = dict[Path, list[Record]]()

    def read(self, streams: set[Path]) -> list[Record]:
        """Return all records so far, without the line that is being written."""
        for stream in streams:
            with stream.open("rb") as file:
                file.seek(self._ends.get(stream, 0))
                whole, _, _ = file.read().rpartition(b"\n")
            if not whole:
                continue
            self._ends[stream] = self._ends.get(stream, 0) + len(whole) + 1
            found = self._records.setdefault(stream, [])
            for line in whole.decode().split("\n"):
                with suppress(WireError):
                    if (record := decode(line)) is not None:
                        found.append(record)
        return [record for records in self._records.values() for record in records]
