"""Commands with open streams on a host."""

from __future__ import annotations

import asyncio
import os
import sys

from cockpit.backends.protocol import Terminal
from cockpit.backends.ssh.connection import Connection
from cockpit.backends.ssh.terminal import SshTerminal, attach

LATE = """
import os, signal, sys, tty

print("ready", flush=True)
while os.get_terminal_size() != (55, 44):
    pass
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"resized") and sys.exit())
signal.signal(signal.SIGALRM, lambda *_: sys.exit("no signal"))
signal.alarm(20)
tty.setraw(0)
while True:
    signal.pause()
"""
"""As ssh on a shared connection: it handles the signal only after the first output."""


async def read(terminal: Terminal) -> bytes:
    async with asyncio.timeout(60):
        return b"".join([part async for part in terminal.output()])


async def read_resized(terminal: Terminal) -> bytes:
    """The whole output of a program whose terminal becomes larger once it is ready."""
    output = b""
    async with asyncio.timeout(60):
        async for part in terminal.output():
            output += part
            if b"ready" in part:
                await terminal.resize(44, 55)
    return output


async def test_command_has_a_terminal_of_the_size_and_its_code_returns(
    connection: Connection,
) -> None:
    script = "stty size; read line; echo got $line; exit 3"
    terminal = await attach(connection, ["sh", "-c", script], tty=True, rows=33, columns=99)
    await terminal.write(b"word\n")
    output = await read(terminal)
    assert b"33 99\r\n" in output
    assert b"got word\r\n" in output
    assert await terminal.wait() == 3
    await terminal.aclose()


async def test_resize_is_passed_on(connection: Connection) -> None:
    script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done"
    terminal = await attach(connection, ["sh", "-c", script], tty=True, rows=10, columns=20)
    assert b"44 55" in await read_resized(terminal)
    await terminal.aclose()


async def test_resize_is_signalled_once_ssh_handles_the_signal(connection: Connection) -> None:
    ours, its = os.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LATE, stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)
    terminal = SshTerminal(connection, process, ours)
    assert await read_resized(terminal) == b"ready\r\nresized"
    assert await terminal.wait() == 0
    await terminal.aclose()


async def test_without_a_terminal_input_and_both_outputs_are_passed_on(
    connection: Connection,
) -> None:
    script = "cat; echo end >&2; exit 4"
    terminal = await attach(connection, ["sh", "-c", script], tty=False, rows=0, columns=0)
    await terminal.write(b"a\x00b\n")
    await terminal.close_input()
    assert sorted((await read(terminal)).splitlines()) == [b"a\x00b", b"end"]
    assert await terminal.wait() == 4
    await terminal.aclose()
