"""A real MLflow tracking server on loopback, with its own artifact store, by default on SQLite."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.sources.prometheus_server import free_port

START_S = 240.0
"""It migrates its new database, which a busy machine takes a minute for."""


def need_mlflow() -> None:
    """Skip the test where MLflow is not installed; in CI that fails it."""
    if find_spec("mlflow") is None:
        pytest.skip("MLflow is not installed: the [train] extra")


@dataclass
class MlflowServer:
    """Use `running`; `stop` and `start` in between keep its data and its port."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables of the server, such as the address of another database."""
    port: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[MlflowServer]:
        need_mlflow()
        self.port = self.port or free_port()
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self) -> None:
        """Does nothing when it runs."""
        if self._process is not None:
            return
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("MLFLOW_")},
            "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{self.folder / 'mlflow.db'}",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            **self.environment,
        }
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,  # it leaves its own children behind when it is killed
            )
        deadline = time.monotonic() + START_S
        while not self._is_well():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.2)

    def stop(self) -> None:
        if self._process is None:
            return
        group, self._process = self._process, None
        group.terminate()
        try:
            group.wait(timeout=20)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(group.pid, signal.SIGKILL)

    def script(self, program: str, *arguments: str, **environment: str) -> str:
        """Run a user's script against it; what it printed."""
        data = {**os.environ, "MLFLOW_TRACKING_URI": self.url, **environment}
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=self.folder,
            env=data,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _is_well(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            with suppress(OSError):
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
            return False
        finally:
            connection.close()
