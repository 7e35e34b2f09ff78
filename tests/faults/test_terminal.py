"""The UI on a real terminal: how it ends, and when the terminal is closed."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from textual.app import App
from textual.drivers._writer_thread import WriterThread

from cockpit.backends.local import list_clusters
from cockpit.model.error import ExitCode
from cockpit.tui.terminal.backlog import frames_waiting
from cockpit.tui.terminal.driver import TerminalDriver, _Output
from tests.local_cluster import separate_state

TIMEOUT_S = 240.0


def read_until(terminal: int, output: bytes) -> None:
    seen = b""
    deadline = time.monotonic() + TIMEOUT_S
    while output not in seen:
        assert time.monotonic() < deadline, seen[-2000:]
        seen += os.read(terminal, 1 << 16)


def ended(pid: int) -> int:
    """Its exit code, or minus the signal that ended it; fails the test when it does not end."""
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
    """cockpit on a new terminal: its process id, and the other end of the terminal."""
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


def test_a_screen_ends_when_its_terminal_goes_away() -> None:
    """As when an SSH connection is lost; the kernel sends SIGHUP and SIGCONT."""
    pid, terminal = screen()
    read_until(terminal, b"with exit code 3")
    os.close(terminal)
    ended(pid)


async def test_output_to_a_closed_terminal_is_dropped() -> None:
    ours, theirs = pty.openpty()
    driver = TerminalDriver(App())
    file = os.fdopen(theirs, "w", closefd=False)
    output: Any = _Output(file)
    driver.fileno, driver._file = theirs, output
    os.close(ours)
    writer = driver._writer_thread = WriterThread(output)
    writer.start()
    for _ in range(100):  # the queue has 30 places
        driver.write("a frame")
        driver.flush()
    driver._auto_restart = True
    driver._sigcont_application()
    assert driver._writer_thread is writer
    driver.close()
    with pytest.raises(OSError, match="Input/output"):
        file.close()  # with what it could not write
    os.close(theirs)


@contextmanager
def driven() -> Iterator[tuple[TerminalDriver, int]]:
    """A driver, and the other end of its terminal."""
    ours, theirs = pty.openpty()
    driver = TerminalDriver(App())
    with os.fdopen(theirs, "w", encoding="utf-8") as file:
        output: Any = _Output(file)
        driver.fileno, driver._file = theirs, output
        output.open()
        driver._writer_thread = WriterThread(output)
        driver._writer_thread.start()
        try:
            yield driver, ours
        finally:
            driver.close()
            os.close(ours)


async def test_a_frame_is_written_before_the_event_loop_goes_on() -> None:
    with driven() as (driver, terminal):
        driver.write("a frame")
        assert select.select([terminal], [], [], 0)[0]
        assert os.read(terminal, 100) == b"a frame"


async def test_a_terminal_that_reads_late_gets_all_frames_in_their_order() -> None:
    with driven() as (driver, terminal):
        written = ""
        while frames_waiting(driver) < 3:  # it takes no more, and the thread waits for it
            frame = f"{len(written):09d} … ✓ é " * 200
            driver.write(frame)
            written += frame
        wanted, received = written.encode(), b""
        while len(received) < len(wanted):
            received += os.read(terminal, 1 << 16)
        assert received == wanted
        assert len(wanted) > 3 * len(frame)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize(
    "moment", [b"ray start", pytest.param(b"RUNNING", marks=pytest.mark.nightly)]
)
def test_a_demo_whose_terminal_no_longer_exists_takes_its_cluster_down(moment: bytes) -> None:
    with separate_state():
        pid, terminal = screen("demo", "--workers=1", "--name=hangup")
        read_until(terminal, moment)
        os.close(terminal)
        ended(pid)
        assert list_clusters() == ()
