from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from cockpit.alerts.hooks import WAITING, Hooks
from cockpit.alerts.settings import Hook
from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.event import Event, Notice

DEADLINE_S = 10.0


def alert(severity: Severity = Severity.CRITICAL, kind: str = "loss-nan") -> Alert:
    finding = Finding(kind, "run r", severity, "The loss\nis not a number", "why", "todo", "r")
    return Alert(f"{kind}/run r", finding, 100.0)


def to_file(path: Path) -> tuple[str, ...]:
    code = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"
    return (sys.executable, "-c", code, str(path))


class Server(HTTPServer):
    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = status
        self.got: list[tuple[dict[str, str], Any]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def server(status: int = 200) -> Iterator[Server]:
    made = Server(status)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def told(*hooks: Hook, alerts: int = 1) -> list[Event]:
    events: list[Event] = []
    of = Hooks(hooks, events.append)
    for _ in range(alerts):
        of.notify(alert())
    of.close(DEADLINE_S)
    return events


def test_a_command_gets_the_alert_as_json_on_its_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert told(Hook(command=to_file(out))) == []
    data = json.loads(out.read_text())
    assert data["state"] == "raised"
    assert data["id"] == "loss-nan/run r"
    assert data["text"] == "cockpit critical: The loss is not a number"


def test_a_command_is_handed_to_a_shell_only_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert told(Hook(command=(f"cat | tr a-z A-Z > {out}",), shell=True)) == []
    assert '"STATE": "RAISED"' in out.read_text()
    [notice] = told(Hook(command=(f"cat > {out}",)))
    assert isinstance(notice, Notice)
    assert "FileNotFoundError" in notice.message


def test_a_webhook_is_posted_with_its_headers() -> None:
    with server() as made:
        hook = Hook(url=f"http://127.0.0.1:{made.server_port}/a", headers={"X-Key": "secret"})
        assert told(hook) == []
    [(headers, body)] = made.got
    assert headers["X-Key"] == "secret"
    assert body["severity"] == "critical"


def test_a_hook_that_fails_is_reported_once_and_without_its_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with server(500) as made, caplog.at_level(logging.DEBUG):
        url = f"http://user:hunter2@127.0.0.1:{made.server_port}/T000/tok3n"
        hook = Hook(url=url, headers={"X-Key": "s3cret"})
        events = told(hook, alerts=3)
    assert len(made.got) == 3
    [notice] = events
    assert isinstance(notice, Notice)
    assert notice.message.startswith(
        "The alert hook webhook 127.0.0.1 failed: it returned HTTP 500"
    )
    # httpx's logger writes URLs at INFO; cockpit disables it, and cockpit's loggers must not write
    # them.
    ours = [record.getMessage() for record in caplog.records if "cockpit" in record.name]
    for secret in ("hunter2", "tok3n", "s3cret"):
        assert secret not in f"{events} {ours} {hook!r}"


@pytest.mark.timed
def test_a_hook_that_hangs_is_ended_with_all_that_it_started() -> None:
    began = time.monotonic()
    events = told(Hook(command=("sleep 60 & sleep 61",), shell=True, timeout_s=0.3))
    assert time.monotonic() - began < DEADLINE_S / 2
    [notice] = events
    assert isinstance(notice, Notice)
    assert "longer than 0.3 s" in notice.message


@pytest.mark.timed
def test_answer_of_a_webhook_is_limited_in_time_and_its_body_is_not_read() -> None:
    """A server that sends a byte now and then, and one that would never end its body."""
    for header, failures, timeout_s in ((b"X: ", 1, 0.5), (b"\r\n", 0, DEADLINE_S / 4)):
        with slow_server(b"HTTP/1.1 200 OK\r\n" + header + b"x" * 60) as url:
            began = time.monotonic()
            events = told(Hook(url=url, timeout_s=timeout_s))
            assert time.monotonic() - began < DEADLINE_S / 2
        assert str(events).count("no answer within 0.5 s") == len(events) == failures


@contextmanager
def slow_server(answer: bytes) -> Iterator[str]:
    """It sends all up to the last 60 bytes at once, and then a byte every 0.2 s."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as connection:
                connection.sendall(answer[:-60])
                for byte in answer[-60:]:
                    if over.wait(0.2):
                        return
                    with suppress(OSError):
                        connection.sendall(bytes((byte,)))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            over.set()
            thread.join()


def test_a_slow_hook_blocks_nothing_and_its_queue_is_bounded(tmp_path: Path) -> None:
    block = tmp_path / "block"
    os.mkfifo(block)
    events: list[Event] = []
    slow = Hook(command=("cat", str(block)))
    hooks = Hooks((slow,), events.append)
    try:
        for _ in range(3 * WAITING):
            hooks.notify(alert())
        assert not events, "no command has ended: each waits for the writer below"
        assert hooks.dropped >= 2 * WAITING - 1
    finally:
        writer = os.open(block, os.O_RDWR)  # a FIFO opened for both does not wait for a reader
        block.unlink()
        block.touch()  # for the hooks that still wait in the queue
        os.close(writer)
        hooks.close(DEADLINE_S)


def test_hooks_are_reported_from_their_severity_on_and_of_the_end_if_they_want(
    tmp_path: Path,
) -> None:
    out, critical = tmp_path / "all", tmp_path / "critical"
    hooks = Hooks(
        (
            Hook(command=to_file(out), severity=Severity.INFO),
            Hook(command=to_file(critical), severity=Severity.CRITICAL, cleared=False),
        ),
        lambda event: None,
    )
    hooks.notify(alert(Severity.WARNING))
    hooks.notify(alert(Severity.CRITICAL))
    hooks.notify(alert(Severity.CRITICAL), cleared_s=200.0)
    hooks.close(DEADLINE_S)
    assert [json.loads(line)["state"] for line in out.read_text().splitlines()] == [
        "raised",
        "raised",
        "cleared",
    ]
    assert len(critical.read_text().splitlines()) == 1


def test_without_hooks_there_is_no_thread() -> None:
    before = set(threading.enumerate())
    hooks = Hooks((), lambda event: None)
    hooks.notify(alert())
    assert not set(threading.enumerate()) - before
    hooks.close()
