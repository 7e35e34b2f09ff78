"""The screen on a real terminal: how it ends, and when the terminal goes away under it."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time

import pytest

from cockpit.backends.local import list_clusters
from cockpit.model.error import ExitCode
from tests.local_cluster import separate_state

TIMEOUT_S = 90.0


def read_until(terminal: int, words: bytes) -> None:
    seen = b""
    deadline = time.monotonic() + TIMEOUT_S
    while words not in seen:
        assert time.monotonic() < deadline, seen[-2000:]
        seen += os.read(terminal, 1 << 16)


def ended(pid: int) -> int:
    """Its exit code, or minus the signal that ended it; fails the test when it goes on."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("cockpit went on without its terminal")


def screen(*argv: str) -> tuple[int, int]:
    """cockpit on a terminal of its own: its process id, and our end of the terminal."""
    command = [sys.executable, "-m", "cockpit", *argv]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LINES="24", COLUMNS="80")
        os.execv(command[0], command)
    return pid, terminal


def test_a_screen_that_found_no_cluster_ends_with_the_code_for_it() -> None:
    pid, terminal = screen()
    read_until(terminal, b"with exit code 3")
    os.write(terminal, b"q")
    assert ended(pid) == ExitCode.UNREACHABLE
    os.close(terminal)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("moment", [b"ray start", b"RUNNING"])
def test_a_demo_whose_terminal_no_longer_exists_takes_its_cluster_down(moment: bytes) -> None:
    with separate_state():
        pid, terminal = screen("demo", "--workers=1", "--name=hangup")
        read_until(terminal, moment)
        os.close(terminal)
        ended(pid)
        assert list_clusters() == ()
