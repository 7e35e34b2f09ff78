"""A small disk for cockpit's state directory, in a separate mount namespace."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.child_process import die_with_parent

SIZE_BYTES = 64 << 20


class SmallDisk:
    """A tmpfs at `path` that only processes started with `enter` see; it ends with this thread."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True)
        mount = f"mount -t tmpfs -o size={SIZE_BYTES},mode=700 cockpit-soak {self.path}"
        self._holder = subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation", "private"),
                *("sh", "-ec", f"{mount}; echo mounted; exec sleep infinity"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
        )
        assert self._holder.stdout is not None
        with self._holder.stdout as text:
            is_mounted = text.readline() == b"mounted\n"
        if not is_mounted:
            self._holder.kill()
            self._holder.wait()
            raise RuntimeError(f"no tmpfs could be mounted at {self.path}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._holder.kill()
        self._holder.wait()

    @property
    def seen(self) -> Path:
        """The directory as this process reaches it."""
        return Path(f"/proc/{self._holder.pid}/root{self.path}")

    def enter(self, *argv: str) -> list[str]:
        """The command line that runs `argv` where the disk is mounted."""
        return ["nsenter", "-t", str(self._holder.pid), "-m", "--", *argv]

    def fill(self) -> int:
        """Write until there is no room. Returns how many bytes it took."""
        taken = 0
        with (self.seen / "filler").open("wb", buffering=0) as file:
            while True:
                try:
                    taken += file.write(b"x" * 4096)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    return taken

    def free(self) -> None:
        (self.seen / "filler").unlink(missing_ok=True)

    def used_bytes(self) -> int:
        of = os.statvfs(self.seen)
        return (of.f_blocks - of.f_bfree) * of.f_frsize


def wait_until_gone(pid: int, timeout_s: float) -> bool:
    """Whether the process ended in time."""
    deadline = time.monotonic() + timeout_s
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
