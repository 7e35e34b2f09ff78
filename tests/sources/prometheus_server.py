"""A real Prometheus on loopback, what it scrapes, and a past to start with."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

START_S = 30.0


def need_prometheus() -> None:
    """Skip the test where the programs are not installed; in CI that fails it."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed: apt-get install prometheus")


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of an exposition; without a time, of now."""

    name: str
    labels: Mapping[str, str]
    value: float
    at_s: float | None = None

    def line(self) -> str:
        inside = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        at = "" if self.at_s is None else f" {self.at_s:.3f}"
        return f"{self.name}{{{inside}}} {self.value!r}{at}"


def exposition(samples: Sequence[Sample]) -> str:
    """OpenMetrics, each family together."""
    lines = []
    for name in dict.fromkeys(sample.name for sample in samples):
        lines.append(f"# TYPE {name} gauge")
        lines += [sample.line() for sample in samples if sample.name == name]
    return "\n".join([*lines, "# EOF", ""])


@dataclass
class Exporter:
    """The exports of a node; change `samples` and the next scrape returns them."""

    samples: list[Sample] = field(default_factory=list)
    port: int = 0

    @contextmanager
    def serve(self) -> Iterator[Exporter]:
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = exposition(exporter.samples).encode()
                self.send_response(200)
                kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@dataclass
class PrometheusServer:
    """Use `running`; `stop` and `start` in between keep its data and its port."""

    folder: Path
    targets: Sequence[str] = ()
    users: Mapping[str, str] = field(default_factory=dict)
    """Names and bcrypt hashes, for basic authentication."""
    found_by: str = ""
    """A URL that lists further targets, requested with `token`, like the targets."""
    token: str = field(default="", repr=False)
    port: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _status: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self, past: Sequence[Sample] = ()) -> Iterator[PrometheusServer]:
        need_prometheus()
        self.port = self.port or free_port()
        if past:
            self._remember(past)
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def _remember(self, past: Sequence[Sample]) -> None:
        source = self.folder / "past.txt"
        source.write_text(exposition(past))
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration"]
        command += ["720h", str(source), str(self.folder / "data")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        scraped: dict[str, object] = {"job_name": "test"}
        scraped["static_configs"] = [{"targets": list(self.targets)}]
        if self.found_by:
            bearer = {"type": "Bearer", "credentials": self.token}
            found = {"url": self.found_by, "refresh_interval": "2s", "authorization": bearer}
            scraped |= {"http_sd_configs": [found], "authorization": bearer}
        every = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        config = json.dumps({"global": every, "scrape_configs": [scraped]})  # JSON is YAML
        (self.folder / "prometheus.yml").write_text(config)
        users = "".join(f"  {name}: {hashed}\n" for name, hashed in self.users.items())
        (self.folder / "web.yml").write_text(f"basic_auth_users:\n{users}" if users else "")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self.folder / 'prometheus.yml'}",
                    f"--web.config.file={self.folder / 'web.yml'}",
                    f"--storage.tsdb.path={self.folder / 'data'}",
                    "--storage.tsdb.retention.time=60d",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_S
        while not self._is_ready():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def await_series(self, name: str) -> None:
        """Until it has been scraped."""
        deadline = time.monotonic() + START_S
        while True:
            with suppress(OSError):  # it may not answer in time yet
                if f'"{name}"' in self._get(f"/api/v1/query?query={name}").decode():
                    return
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=30)
            self._process = None

    def _is_ready(self) -> bool:
        with suppress(OSError):
            self._get("/-/ready")
            return self._status in (200, 401)
        return False

    def _get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            self._status = response.status
            return response.read()
        finally:
            connection.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
