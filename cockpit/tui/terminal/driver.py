"""Textual's driver, for a terminal that may close, as when an SSH connection is lost."""

from __future__ import annotations

import errno
import termios
from typing import Any, TextIO, cast

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

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
    """A terminal as a file; writes after it is closed are dropped."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        try:
            return self._file.write(text)
        except OSError as error:
            return self._dropped(error, len(text))

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            self._dropped(error, 0)

    @staticmethod
    def _dropped(error: OSError, count: int) -> int:
        if error.errno not in CLOSED:
            raise error
        return count
