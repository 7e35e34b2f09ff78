"""A shell on this machine behind the Protocol of a shell in a pod.

As a program it is the screen on a simulated cluster whose pods have such a shell.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Sequence


class LocalShell:
    """`argv` on a new pseudo-terminal."""

    def __init__(self, argv: Sequence[str], rows: int, columns: int) -> None:
        self._own, its = pty.openpty()
        self._set_size(rows, columns)
        self._child = subprocess.Popen(
            argv, stdin=its, stdout=its, stderr=its, start_new_session=True
        )
        os.close(its)
        self.closed = False

    async def output(self) -> AsyncIterator[bytes]:
        while True:
            try:
                data = await asyncio.to_thread(os.read, self._own, 4096)
            except OSError:  # Linux reports a closed terminal as EIO
                return
            if not data:
                return
            yield data

    async def write(self, data: bytes) -> None:
        os.write(self._own, data)

    async def close_input(self) -> None:
        os.write(self._own, b"\x04")

    async def resize(self, rows: int, columns: int) -> None:
        self._set_size(rows, columns)

    async def wait(self) -> int:
        return await asyncio.to_thread(self._child.wait)

    async def aclose(self) -> None:
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            await asyncio.to_thread(self._child.wait)
        if not self.closed:
            self.closed = True
            os.close(self._own)

    def _set_size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def screen() -> None:
    from cockpit.tui.app import CockpitApp
    from cockpit.tui.changes.actions import Connection
    from tests.tui.simulated_kubernetes import kube

    simulation = kube()
    simulation.advance(60)
    simulation.backend.shell = LocalShell
    with simulation.session:
        CockpitApp(lambda log: Connection(simulation.session, simulation.actions)).run()


if __name__ == "__main__":
    screen()
