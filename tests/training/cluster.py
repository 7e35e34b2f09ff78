"""One real Ray head for the tests of jobs and telemetry, with a directory and a token of its own.

The tests stay outside of it: they start drivers as processes and read the stream from its file.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from training.telemetry.wire import (
    CALLBACK,
    FILE_PATTERN,
    TUNE_CALLBACK,
    Record,
    WireError,
    decode,
)

ROOT = Path(__file__).parent.parent.parent
HOST = """
import ray, sys
context = ray.init(address="local", num_cpus=4, include_dashboard=False, _temp_dir=sys.argv[1])
print(context["address"], flush=True)
sys.stdin.read()
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


@contextmanager
def started() -> Iterator[Cluster]:
    """Ends with the process that holds it: its standard input is closed."""
    # A short path: Ray's sockets lie below it, and a socket's path ends at 107 characters.
    with TemporaryDirectory(prefix="ct", dir="/tmp", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        token = directory / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("RAY_")},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
        }
        host = subprocess.Popen(
            [sys.executable, "-c", HOST, str(directory / "ray")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(directory / "host.log").open("w"),
            env=environment,
            text=True,
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
            # Resolved once: each driver that connects makes the link anew, and it is missing then.
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
    limit_s: float = 500,
    until: Callable[[list[Record]], bool] = lambda records: False,
) -> Outcome:
    """Run a driver to its end, or kill it `until` so; `watch` sees the stream grow."""
    before = cluster.streams()
    log = cluster.directory / f"{len(before)}.log"
    process = subprocess.Popen(
        [sys.executable, *argv],
        cwd=ROOT,
        env=cluster.environment,
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
    )
    deadline = time.monotonic() + limit_s
    try:
        while process.poll() is None:
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            records = read(cluster.streams() - before)
            watch(records)
            if until(records):
                break
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    return Outcome(process.returncode, log.read_text(), read(cluster.streams() - before))


def read(streams: set[Path]) -> list[Record]:
    found: list[Record] = []
    for stream in streams:
        for line in stream.read_text().splitlines():
            try:
                record = decode(line)
            except WireError:
                continue  # the line that is being written
            if record is not None:
                found.append(record)
    return found
