"""A shell in a pod: the terminal is lent to it until it ends."""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cockpit.actions.cluster import SHELL
from cockpit.model.cluster import is_protected
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line
from cockpit.tui.changes.changes import allowed, confirmation

if TYPE_CHECKING:
    from cockpit.backends.protocol import Terminal
    from cockpit.session.session import Session
    from cockpit.tui.app_base import AppBase

LEAVE = b"\x1d"
"""ctrl+]: three in a row leave a shell that does not respond."""
KEYBOARD, SCREEN = 0, 1
CHUNK = 65_536


async def open_shell(app: AppBase, pod: str) -> None:
    """Raise CockpitError if no shell is available; the UI is restored in either case."""
    actions = allowed(app, "exec", "No shell was opened.")
    session = app.session
    assert session is not None
    if is_protected(session.backend.ref, app.protected) and not await app.push_screen_wait(
        confirmation(app, "Open a shell?", [f"Open a shell in pod {pod}."], "Open")
    ):
        return
    app.notify(f"Opening a shell in {pod} …", timeout=3, markup=False)
    columns, rows = shutil.get_terminal_size()
    terminal = await app.submit(actions.attach(pod, SHELL, tty=True, rows=rows, columns=columns))
    if app.lent:  # the key was pressed twice: the first shell has the terminal
        await app.submit(terminal.aclose())
        return
    title = f"\r\nA shell in {one_line(pod)}. To return: exit, or ctrl+] three times.\r\n"
    with app.lend_terminal(), raw(KEYBOARD) as keyboard:
        os.write(SCREEN, title.encode())
        with forwarded_resizes(session, terminal):
            code = await app.submit(pump(terminal, keyboard, SCREEN))
    if code not in (0, 130, None):
        raise CockpitError(
            f"The shell in {pod} ended with exit code {code}.",
            "126 and 127 mean that the container has no shell." if code in (126, 127) else "",
        )


async def pump(terminal: Terminal, keyboard: int, screen: int) -> int | None:
    """Forward keys and output until the command has ended. Return its exit code.

    None when the user has left it. `keyboard` and `screen` are file descriptors.
    """
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    with _read_in_thread(keyboard, keys):
        going_in = asyncio.create_task(_carry_in(terminal, keys))
        coming_out = asyncio.create_task(_carry_out(terminal, screen))
        try:
            done, _ = await asyncio.wait(
                {going_in, coming_out}, return_when=asyncio.FIRST_COMPLETED
            )
            if coming_out in done:
                coming_out.result()
                return await terminal.wait()
            going_in.result()
            return None
        finally:
            for task in (going_in, coming_out):
                task.cancel()
            await asyncio.gather(going_in, coming_out, return_exceptions=True)
            await terminal.aclose()


async def _carry_in(terminal: Terminal, keys: asyncio.Queue[bytes]) -> None:
    """Ends when the user leaves, or the keyboard does."""
    leaving = 0
    while typed := await keys.get():
        at_end = len(typed) - len(typed.rstrip(LEAVE))
        leaving = leaving + at_end if at_end == len(typed) else at_end
        if leaving >= 3:
            return
        await terminal.write(typed)


async def _carry_out(terminal: Terminal, screen: int) -> None:
    async for chunk in terminal.output():
        # A terminal that does not read must not block the sources, which share this loop.
        await asyncio.to_thread(_write_all, screen, chunk)


def _write_all(screen: int, data: bytes) -> None:
    while data:
        data = data[os.write(screen, data) :]


@contextmanager
def _read_in_thread(keyboard: int, keys: asyncio.Queue[bytes]) -> Iterator[None]:
    """Put input into the queue, and an empty chunk at its end.

    A thread with `select`, since an event loop cannot watch every file descriptor.
    """
    loop = asyncio.get_running_loop()
    ended, end = os.pipe()

    def read() -> None:
        while True:
            ready, _, _ = select.select([keyboard, ended], [], [])
            if ended in ready:
                return
            try:
                typed = os.read(keyboard, CHUNK)
            except OSError:
                typed = b""
            loop.call_soon_threadsafe(keys.put_nowait, typed)
            if not typed:
                return

    thread = threading.Thread(target=read, name="cockpit-shell", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(end)
        thread.join(timeout=5)
        os.close(ended)


@contextmanager
def raw(keyboard: int) -> Iterator[int]:
    """Every key is sent to the shell, ctrl+c too."""
    before = termios.tcgetattr(keyboard)
    tty.setraw(keyboard)
    try:
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


@contextmanager
def forwarded_resizes(session: Session, terminal: Terminal) -> Iterator[None]:
    """Give the terminal in the pod the size of this one whenever it changes."""

    def resize(*_: object) -> None:
        columns, rows = shutil.get_terminal_size()
        session.submit(terminal.resize(rows, columns))

    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        with suppress(TypeError):
            signal.signal(signal.SIGWINCH, before)
