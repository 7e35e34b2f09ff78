"""An S3 server on this host, behind a proxy that lets chosen requests fail.

The server is gofakes3, built by `python -m tests.cluster.build`. The proxy applies a plan, so that
the same requests fail in each run.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.cluster.build import COMMAND, program
from tests.sources.prometheus_server import free_port

BUCKET = "bucket"
STARTS_WITHIN_S = 60.0
_ERROR = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>planned</Message></Error>'
_COMPLETED = (
    '<?xml version="1.0"?><CompleteMultipartUploadResult><ETag>"0"</ETag>'
    "</CompleteMultipartUploadResult>"
)


class Kind(Enum):
    SLOW_DOWN = (503, "SlowDown")
    INTERNAL_ERROR = (500, "InternalError")
    DENIED = (403, "AccessDenied")
    SKEWED = (403, "RequestTimeTooSkewed")
    TORN = (0, "")
    """The connection ends within the response, or before it if there is no body."""
    SLOW = (1, "")
    """The request takes `delay_s` longer."""


@dataclass
class Fault:
    kind: Kind
    method: str
    path: str
    """A part of the request's path; '' for any."""
    times: int
    delay_s: float = 0.0


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    status: int
    """0: torn."""


@dataclass
class ObjectStore:
    address: str
    """HOST:PORT of the proxy."""
    upstream: str
    requests: list[Request] = field(default_factory=list)
    plan: list[Fault] = field(default_factory=list)
    empty_uploads: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def environment(self) -> dict[str, str]:
        """What a process needs to use the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.address}",
            "AWS_ACCESS_KEY_ID": "id-of-the-test",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            # Like older servers, gofakes3 does not read bodies with a checksum after them.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "WHEN_REQUIRED",
        }

    def fail(
        self, kind: Kind, method: str = "", path: str = "", *, times: int = 1, delay_s: float = 0.0
    ) -> None:
        """The next requests of this method whose path contains `path`."""
        with self.lock:
            self.plan.append(Fault(kind, method, path, times, delay_s))

    def failed(self) -> int:
        """The number of requests that failed as planned."""
        return sum(item.status in (0, 403, 500, 503) for item in self.requests)

    def planned(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.plan:
                if fault.times and fault.method in ("", method) and fault.path in path:
                    fault.times -= 1
                    return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: ObjectStore

    def log_message(self, format: str, *args: Any) -> None:
        """The requests are in `store.requests`."""

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.store.planned(self.command, self.path)
        kind = fault.kind if fault else None
        if fault and kind is Kind.SLOW:
            time.sleep(fault.delay_s)
        if kind in (Kind.SLOW_DOWN, Kind.INTERNAL_ERROR, Kind.DENIED, Kind.SKEWED):
            status, code = kind.value
            self._answer(status, {"Content-Type": "application/xml"}, _ERROR.format(code=code))
            return
        if kind is Kind.TORN and self.command != "GET":
            self._record(0)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if self._is_of_an_empty_object(body):
            return
        upstream = http.client.HTTPConnection(self.store.upstream, timeout=30)
        try:
            headers = {name: value for name, value in self.headers.items() if name != "Expect"}
            upstream.request(self.command, self.path, body, headers)
            response = upstream.getresponse()
            content = response.read()
        finally:
            upstream.close()
        passed = {
            name: value
            for name, value in response.getheaders()
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date")
        }
        size = response.getheader("Content-Length")
        self._answer(response.status, passed, content, size=size, torn=kind is Kind.TORN)

    def _is_of_an_empty_object(self, body: bytes) -> bool:
        """Upload an empty object in one request: gofakes3 refuses an empty part of several."""
        path, _, query = self.path.partition("?")
        asked = dict(parse_qsl(query))
        upload = asked.get("uploadId", "")
        if self.command == "PUT" and "partNumber" in asked and not body:
            self.store.empty_uploads.add(upload)
            self._answer(200, {"ETag": f'"{hashlib.md5(b"").hexdigest()}"'}, b"")
            return True
        if self.command != "POST" or upload not in self.store.empty_uploads:
            return False
        upstream = http.client.HTTPConnection(self.store.upstream, timeout=30)
        try:
            for method, target in (("DELETE", self.path), ("PUT", path)):
                upstream.request(method, target, b"", {"Content-Length": "0"})
                upstream.getresponse().read()
        finally:
            upstream.close()
        self._answer(200, {"Content-Type": "application/xml"}, _COMPLETED)
        return True

    def _answer(
        self,
        status: int,
        headers: dict[str, str],
        content: bytes | str,
        *,
        size: str | None = None,
        torn: bool = False,
    ) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        length = size if self.command == "HEAD" and size else str(len(data))
        self.send_header("Content-Length", length)
        self.end_headers()
        if torn:
            self.wfile.write(data[: len(data) // 2])
            self._record(0)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self._record(status)
        if self.command != "HEAD":
            self.wfile.write(data)

    def _record(self, status: int) -> None:
        with self.store.lock:
            self.store.requests.append(Request(self.command, self.path, status))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass


@contextmanager
def running() -> Iterator[ObjectStore]:
    """A server with an empty bucket; skips the test where it is not built."""
    if not (server := program("gofakes3")).exists():
        pytest.skip(f"the S3 server is not built; `{COMMAND}` builds it")
    upstream = f"127.0.0.1:{free_port()}"
    argv = [str(server), "-backend", "memory", "-host", upstream, "-initialbucket", BUCKET]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(upstream, process)
        store = ObjectStore("", upstream)
        handler = type("Handler", (_Handler,), {"store": store})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
            proxy.daemon_threads = True
            store.address = f"127.0.0.1:{proxy.server_address[1]}"
            thread = threading.Thread(target=proxy.serve_forever, daemon=True)
            thread.start()
            try:
                yield store
            finally:
                proxy.shutdown()
                thread.join()
    finally:
        process.terminate()
        process.wait()


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + STARTS_WITHIN_S
    while process.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    raise RuntimeError(f"the S3 server ended with {process.returncode}")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[ObjectStore]:
    with running() as store:
        yield store


@pytest.fixture
def s3(s3_server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The server, without planned faults, in the environment of this process."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    s3_server.requests.clear()
    s3_server.plan.clear()
    yield s3_server
    s3_server.plan.clear()
