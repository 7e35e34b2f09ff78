"""A head whose GCS keeps its tables in Redis is killed: the other nodes and their actors survive.

`ray start` as in pods, a session of its own for each, so that a kill ends all of its processes.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.sources.prometheus_server import free_port
from tests.training.cluster import ROOT

# tests/training/test_recovered_on_ray.py resumes after a rank is killed; the drills of the head are
# in tests/drills/test_processes_on_local.py, without Redis.
pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.ray]

HEAD, WORKER = "127.0.0.41", "127.0.0.42"
WAIT_S = 600.0
KEPT = """
import os, ray

ray.init(namespace="test", log_to_driver=False)

@ray.remote(num_cpus=0, resources={"worker": 0.001})
class Kept:
    def __init__(self):
        self.calls = 0

    def call(self):
        self.calls += 1
        return os.getpid(), self.calls

kept = Kept.options(name="kept", lifetime="detached", get_if_exists=True).remote()
print("KEPT", *ray.get(kept.call.remote()), flush=True)
"""
HOLDERS = """
import sys, time
from pathlib import Path
import ray
from training.checkpoint.memory.on_ray import RayHolders, keeping, node_id

ray.init(namespace="test", log_to_driver=False, _node_ip_address=sys.argv[1])
with keeping("kept"):
    before = RayHolders("kept").of(node_id())
    print("HELD", flush=True)
    while not Path(sys.argv[2]).exists():
        time.sleep(0.1)
    print("SAME", RayHolders("kept").of(node_id()) == before, flush=True)
"""
JOB = ["-m", "training.jobs.checkpointed", "--workers", "1", "--model", "mlp", "--width", "8"]
LENGTH = ["--epochs", "1000", "--min-step-s", "0.02", "--checkpoint-every-steps", "20"]


@dataclass
class Cluster:
    directory: Path
    redis_port: int
    redis_password: str
    gcs_port: int
    environment: dict[str, str]
    held: ExitStack
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, host: str) -> None:
        argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        number = len(self.nodes)
        # A directory of its own for each start, as in a container.
        argv += [f"--node-ip-address={host}", f"--temp-dir={self.directory / str(number)}"]
        argv += ["--object-store-memory=80000000", "--dashboard-agent-listen-port=0"]
        argv += ["--min-worker-port=0", "--max-worker-port=0"]
        if host == HEAD:
            argv += ["--head", f"--port={self.gcs_port}", "--num-cpus=0", "--disable-usage-stats"]
            argv += ["--include-dashboard=false", f"--redis-password={self.redis_password}"]
            argv.append(f"--ray-client-server-port={free_port()}")
            more = {"RAY_REDIS_ADDRESS": f"127.0.0.1:{self.redis_port}"}
        else:
            argv += [f"--address={HEAD}:{self.gcs_port}", "--num-cpus=2"]
            argv.append('--resources={"worker": 1}')
            more = {}
        log = f"node-{number}.log"
        self.nodes[host] = self.program(argv, log, more)
        self.wait_for(log, "Ray runtime started")

    def program(
        self, argv: list[str], log: str, more: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env=self.environment | (more or {}),
            stdout=(self.directory / log).open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.held.callback(kill, process)
        return process

    def output(self, log: str) -> str:
        path = self.directory / log
        return path.read_text(errors="replace") if path.exists() else ""

    def call(self) -> tuple[int, int]:
        """The process of the actor, and how often it was called."""
        deadline = time.monotonic() + WAIT_S
        while True:
            log = f"call-{time.monotonic_ns()}.log"
            self.program([sys.executable, "-c", KEPT], log).wait(WAIT_S)
            if found := re.search(r"KEPT (\d+) (\d+)", self.output(log)):
                return int(found[1]), int(found[2])
            assert time.monotonic() < deadline, self.output(log)
            time.sleep(1.0)  # the head is still starting

    def train(self, log: str) -> subprocess.Popen[bytes]:
        storage = ["--storage-path", str(self.directory / "results"), "--run-name", "kept"]
        return self.program([sys.executable, *JOB, *LENGTH, *storage], log)

    def wait_for(self, log: str, text: str) -> str:
        deadline = time.monotonic() + WAIT_S
        while not (found := re.search(text, self.output(log))):
            assert time.monotonic() < deadline, self.output(log)[-4000:]
            time.sleep(0.1)
        return found[0]


def kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    redis = shutil.which("redis-server")
    if redis is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with TemporaryDirectory(prefix="hr", dir="/tmp", ignore_cleanup_errors=True) as name:
        directory, password = Path(name), secrets.token_hex(16)
        token = directory / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        gcs_port = free_port()
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("RAY_")},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_ADDRESS": f"{HEAD}:{gcs_port}",
            "RAY_external_storage_namespace": "test",
            # How long a raylet waits for the head, instead of 60 s: other programs use the CPUs.
            "RAY_gcs_rpc_server_reconnect_timeout_s": str(int(WAIT_S)),
            "RAY_raylet_start_wait_time_s": "120",
            "RAY_NUM_REDIS_GET_RETRIES": "90",
            "PYTHONPATH": str(ROOT),
        }
        with ExitStack() as held:
            found = Cluster(directory, free_port(), password, gcs_port, environment, held)
            settings = directory / "redis.conf"
            settings.touch(mode=0o600)
            settings.write_text(
                f"bind 127.0.0.1\nport {found.redis_port}\nrequirepass {password}\nsave ''\n"
                f"dir {directory}\n"
            )
            found.program([redis, str(settings)], "redis.log")
            found.wait_for("redis.log", "Ready to accept connections")
            for host in (HEAD, WORKER):
                found.start(host)
            yield found


def test_node_and_its_actor_survive_the_head_and_a_resubmitted_run_resumes(
    cluster: Cluster,
) -> None:
    process, calls = cluster.call()
    assert calls == 1
    driver = cluster.train("first.log")
    saved = cluster.directory / "results" / "kept"
    deadline = time.monotonic() + WAIT_S
    while not list(saved.glob("checkpoint_*/manifest-0.json")):
        assert time.monotonic() < deadline, cluster.output("first.log")[-4000:]
        time.sleep(0.1)

    for lost in (cluster.nodes[HEAD], driver):  # a driver usually runs on the head
        kill(lost)
    killed_s = time.monotonic()
    cluster.start(HEAD)
    assert cluster.call() == (process, 2), "the same process, with its state"
    assert cluster.nodes[WORKER].poll() is None

    cluster.train("second.log")
    line = cluster.wait_for("second.log", r"resumed at step \d+")
    print(f"{line}, {time.monotonic() - killed_s:.1f} s after the head was killed")
    assert int(line.split()[-1]) >= 20


def test_checkpoints_in_memory_survive_the_head_if_the_driver_is_on_another_node(
    cluster: Cluster,
) -> None:
    is_back = cluster.directory / "is-back"
    cluster.program([sys.executable, "-c", HOLDERS, WORKER, str(is_back)], "holders.log")
    cluster.wait_for("holders.log", "HELD")
    kill(cluster.nodes[HEAD])
    cluster.start(HEAD)
    is_back.touch()
    assert cluster.wait_for("holders.log", "SAME .*") == "SAME True"
