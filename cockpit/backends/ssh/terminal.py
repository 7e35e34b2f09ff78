"""A command on a host with open streams, optionally on a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import termios
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from cockpit.backends.ssh.connection import READ_BYTES, Connection, end

RAW_EVERY_S = 0.01


async def attach(
    connection: Connection, argv: Sequence[str], *, tty: bool, rows: int, columns: int
) -> SshTerminal:
    """Start the command. With `tty`, ssh has a terminal of its own and passes its size on."""
    if not tty:
        process = await connection.start(argv)
        return SshTerminal(connection, process, -1)
    ours, its = os.openpty()
    try:
        _resize(ours, rows, columns)
        process = await connection.start(argv, tty=its, flags=["-tt"])
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(its)
    return SshTerminal(connection, process, ours)


class SshTerminal:
    """`protocol.Terminal` over ssh."""

    def __init__(self, connection: Connection, process: Process, terminal: int) -> None:
        self._connection, self._process, self._terminal = connection, process, terminal

    async def output(self) -> AsyncGenerator[bytes, None]:
        if self._terminal < 0:
            async for part in _both(self._process):
                yield part
            return
        while data := await asyncio.to_thread(self._read):
            yield data

    async def write(self, data: bytes) -> None:
        with suppress(OSError):  # it has ended: `wait` returns how
            if self._terminal >= 0:
                await asyncio.to_thread(os.write, self._terminal, data)
            elif self._process.stdin is not None:
                self._process.stdin.write(data)
                await self._process.stdin.drain()

    async def close_input(self) -> None:
        if self._terminal >= 0:
            await self.write(b"\x04")  # the terminal's own end of input
        elif self._process.stdin is not None:
            self._process.stdin.close()

    async def resize(self, rows: int, columns: int) -> None:
        if self._terminal >= 0 and self._process.returncode is None:
            _resize(self._terminal, rows, columns)
            await self._until_raw()
            # Not from the kernel: the terminal does not control the session of ssh.
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGWINCH)

    async def _until_raw(self) -> None:
        """Wait until ssh handles the signal, which it ignores before.

        With a shared connection, output may come earlier: the master writes it. ssh sets its
        handlers before it makes the terminal raw (`mux_client_request_session` in OpenSSH's mux.c).
        """
        while self._terminal >= 0 and self._process.returncode is None:
            local_flags: int = termios.tcgetattr(self._terminal)[3]
            if not local_flags & termios.ICANON:
                return
            await asyncio.sleep(RAW_EVERY_S)

    async def wait(self) -> int:
        code = await self._process.wait()
        await self._connection.require_end(code)
        return code

    async def aclose(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        await end(self._process)
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def _read(self) -> bytes:
        try:
            return os.read(self._terminal, READ_BYTES)
        except OSError:  # EIO: nothing has the other side open any more
            return b""


def _resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def _both(process: Process) -> AsyncGenerator[bytes, None]:
    """Output and errors as they arrive."""
    assert process.stdout is not None
    assert process.stderr is not None
    queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=8)

    async def read(stream: asyncio.StreamReader) -> None:
        while data := await stream.read(READ_BYTES):
            await queue.put(data)
        await queue.put(b"")

    tasks = [asyncio.create_task(read(one)) for one in (process.stdout, process.stderr)]
    try:
        ended = 0
        while ended < len(tasks):
            data = await queue.get()
            if data:
                yield data
            else:
                ended += 1
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
