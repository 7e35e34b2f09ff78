"""cockpit's screen in tmux, whose terminal can be cut and attached again."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.process import COCKPIT
from tests.bench.terminal import Terminal, plain
from tests.soak.disk import SmallDisk, wait_until_gone

SHOWN = "1 Overview"
TIMEOUT_S = 120.0
"""The UI starts in a second, but the host may be busy."""


class Screen:
    """`close` ends it, and tmux with it."""

    def __init__(
        self, disk: SmallDisk, socket: Path, where: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._disk, self._socket, self._environment = disk, socket, environment
        self._where = where
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "200", "-y", "50", COCKPIT, *where)
        self.pid = int(self._tmux("list-panes", "-F", "#{pane_pid}"))
        self._client: Terminal | None = None

    def _tmux(self, *argv: str) -> str:
        done = subprocess.run(
            self._disk.enter("tmux", "-S", str(self._socket), *argv),
            env={**self._environment, "TERM": "xterm-256color"},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(f"tmux {argv[0]}: {done.stderr or done.stdout}")
        return done.stdout.strip()

    def text(self) -> str:
        """The text of the screen."""
        return self._tmux("capture-pane", "-p")

    def type(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self.text():
            if time.monotonic() > deadline:
                raise AssertionError(f"the screen does not show {text!r}:\n{self.text()}")
            time.sleep(0.2)

    def attach(self) -> None:
        """Attach a terminal and wait until it shows the screen."""
        argv = self._disk.enter("tmux", "-S", str(self._socket), "attach")
        self._client = Terminal(argv, dict(self._environment)).__enter__()
        self._client.wait_for("Overview", TIMEOUT_S)

    def cut(self) -> None:
        """Kill the terminal's client, as a lost connection does."""
        client, self._client = self._client, None
        if client is not None:
            os.killpg(client.pid, signal.SIGKILL)
            client.__exit__(None, None, None)

    def read(self) -> None:
        """Take what the attached terminal was sent."""
        if self._client is not None:
            for _ in self._client.texts(0.01):
                pass

    def close(self) -> bool:
        """Quit with the key. Returns whether it has ended."""
        self.cut()
        try:
            self.type("q")
            ended = wait_until_gone(self.pid, 15.0)
        except (RuntimeError, subprocess.TimeoutExpired):
            ended = not Path(f"/proc/{self.pid}").exists()
        subprocess.run(
            self._disk.enter("tmux", "-S", str(self._socket), "kill-server"),
            capture_output=True,
            check=False,
        )
        return ended


def closed_terminal_ends_it(
    disk: SmallDisk, where: Sequence[str], environment: Mapping[str, str]
) -> bool:
    """Start another screen, close its terminal (SIGHUP), and return whether it ended."""
    own, its = pty.openpty()
    child = subprocess.Popen(
        disk.enter(COCKPIT, *where),
        env={**environment, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
        preexec_fn=lambda: os.login_tty(its),  # its controlling terminal
    )
    os.close(its)
    try:
        seen, deadline = "", time.monotonic() + TIMEOUT_S
        while "Overview" not in seen:
            if time.monotonic() > deadline:
                raise AssertionError(f"the second screen shows nothing: {seen[-300:]!r}")
            if select.select([own], [], [], 1.0)[0]:
                seen += plain(os.read(own, 1 << 16))
    finally:
        os.close(own)
    try:
        child.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return False
    return True
