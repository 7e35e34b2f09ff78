"""A command on a real pseudo-terminal, with the time of its output."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

_ESCAPES = re.compile(
    rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1bP.*?\x1b\\|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]",
    re.DOTALL,
)


class Terminal:
    """Of 200×50, in 256 colours. Queries for the terminal's abilities are not answered."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.began_s = time.time()
        self._argv, self._env = argv, {**os.environ, "TERM": "xterm-256color", **(env or {})}

    def __enter__(self) -> Self:
        self._own, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.began_s = time.time()
        # Its controlling terminal: some programs open /dev/tty.
        self._child = subprocess.Popen(
            ["setsid", "--ctty", *self._argv], env=self._env, stdin=its, stdout=its, stderr=its
        )
        os.close(its)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.send_signal(signal.SIGTERM)
        try:
            # Continue to read: a program whose terminal is full does not end.
            for _ in self.texts(10):
                if self._child.poll() is not None:
                    break
            self._child.wait(1)
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
        finally:
            os.close(self._own)

    @property
    def pid(self) -> int:
        return self._child.pid

    def answer_s(self, key: str, *, quiet_s: float = 0.03, timeout_s: float = 5.0) -> float:
        """The time from a key to the first output after it.

        No output may be pending: it waits for a pause of `quiet_s` first, if the program has one.
        """
        patient_until = time.monotonic() + 1.0
        while time.monotonic() < patient_until:
            if not select.select([self._own], [], [], quiet_s)[0]:
                break
            os.read(self._own, 1 << 16)
        begun = time.monotonic()
        self.type(key)
        if not select.select([self._own], [], [], timeout_s)[0]:
            raise TimeoutError(f"no answer to {key!r} in {timeout_s:g} s")
        took = time.monotonic() - begun
        os.read(self._own, 1 << 16)
        return took

    def type(self, keys: str) -> None:
        os.write(self._own, keys.encode())

    def texts(self, timeout_s: float) -> Iterator[tuple[float, str]]:
        """Yield (Unix time, text without escapes) of the output, until it ends or the time is up.

        A text may end within an escape sequence; the searched text must then be printed again.
        """
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._own], [], [], left)[0]:
                return
            now = time.time()
            try:
                data = os.read(self._own, 1 << 16)
            except OSError:  # Linux reports a closed terminal as EIO
                return
            yield now, plain(data)

    def bytes_in(self, seconds: float) -> int:
        """The number of bytes in that time."""
        count, deadline = 0, time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self._own], [], [], left)[0]:
                count += len(os.read(self._own, 1 << 16))
        return count

    def wait_for(self, text: str, timeout_s: float = 30.0) -> float:
        """The Unix time at which it was there. Raises TimeoutError with what was there instead."""
        seen = ""
        for now, piece in self.texts(timeout_s):
            seen += piece
            if text in seen:
                return now
        raise TimeoutError(f"no {text!r} in {timeout_s:g} s; at the end: {seen[-500:]!r}")


def plain(data: bytes) -> str:
    """Without escapes; each becomes a space, so that separate texts stay separate."""
    return _ESCAPES.sub(b" ", data).decode(errors="replace")
