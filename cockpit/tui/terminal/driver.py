"""Textual's driver, for a terminal that may close, as when an SSH connection is lost."""

from __future__ import annotations

import errno
import os
import termios
from contextlib import suppress
from typing import Any, TextIO, cast

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

CLOSED = frozenset({errno.EIO, errno.ENXIO, errno.EPIPE})


class TerminalDriver(LinuxDriver):
    """Drop writes to a closed terminal instead of blocking forever.

    When a terminal closes, the kernel sends SIGHUP and then SIGCONT. Textual takes the latter for
    the end of a suspension, and sets up the terminal again with a new writer thread. That thread
    ends at the first failed write, its queue of 30 fills up, and the event loop blocks on the next
    write (Textual 8.2, textual/drivers/_writer_thread.py).
    """

    def __init__(
        self,
        app: App[Any],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file = cast(Any, _Output(cast(TextIO, self._file)))

    @property
    def _output(self) -> _Output:
        return cast(_Output, self._file)

    def start_application_mode(self) -> None:
        self._output.open()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        super().close()
        self._output.close()

    def write(self, data: str) -> None:
        """Write as much as the terminal accepts, and leave the rest to Textual's writer thread.

        That thread would often begin only when the event loop rests, or 5 ms later
        (`sys.getswitchinterval`).
        """
        writer = self._writer_thread
        if writer is None or not writer.is_alive():
            # Another program has the terminal. The queue of an ended thread would fill up too.
            return
        left = self._output.write_at_once(data)
        if left is not None:
            self._output.queued += 1
            super().write(left)

    def send_message(self, message: Message) -> None:
        """As Textual's, without a coroutine, a future and a task for each event."""
        self._loop.call_soon_threadsafe(self._app.post_message, message)

    def _sigcont_application(self, *_: object) -> None:
        if not self._is_closed():
            super()._sigcont_application()

    def _is_closed(self) -> bool:
        try:
            termios.tcgetattr(self.fileno)
        except termios.error as error:
            return error.args[0] in CLOSED
        return False


class _Output:
    """A terminal as a file; writes after it is closed are dropped.

    `write` and `flush` are the writer thread's, the other methods those of the event loop.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._fd: int | None = None
        self.queued = self._written = 0
        """Writes that the thread was given, and those that it has completed."""
        self._rest = b""
        """Of a write at once, what the terminal did not take; the thread writes it first."""

    def open(self) -> None:
        """Open the terminal a second time, since not to wait is a property of the opened file.

        Without the permission, as after `su`, all is written by the thread.
        """
        with suppress(OSError):
            fd = self._file.fileno()
            if os.isatty(fd):
                flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK
                self._fd = os.open(os.ttyname(fd), flags)

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def write_at_once(self, text: str) -> str | None:
        """Return what the thread is to be given; None if the terminal has taken everything."""
        if self._fd is None or self.queued != self._written:
            return text
        data = text.encode(self._file.encoding, self._file.errors or "strict")
        try:
            taken = os.write(self._fd, data)
        except BlockingIOError:
            return text
        except OSError as error:
            taken = self._dropped(error, len(data))
        self._rest = data[taken:]  # it may begin within a character
        return "" if self._rest else None

    def write(self, text: str) -> int:
        try:
            rest, self._rest = self._rest, b""
            self._file.buffer.write(rest)
            count = self._file.write(text)
            self._file.flush()
        except OSError as error:
            count = self._dropped(error, len(text))
        self._written += 1
        return count

    def flush(self) -> None:
        """Nothing is left to do after `write`."""

    @staticmethod
    def _dropped(error: OSError, count: int) -> int:
        if error.errno not in CLOSED:
            raise error
        return count
