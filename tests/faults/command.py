"""The real `cockpit`, run as a user's shell runs it, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from cockpit.backends.local.files import ClusterFiles
from cockpit.backends.local.pods.process import CLUSTER_VARIABLE

COCKPIT = (sys.executable, "-m", "cockpit")


@dataclass(frozen=True, slots=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str

    def is_a_sentence(self, code: int, *text: str, plan: int = 0) -> None:
        """At most three lines on standard error, no traceback, and the right exit code.

        `plan`: the number of lines before them that show the plan.
        """
        assert self.code == code, self.err
        assert 1 <= len(self.err.splitlines()) - plan <= 3, self.err
        assert "Traceback" not in self.err
        assert "defect" not in self.err
        for label in text:
            assert label in self.err, self.err


def run(
    *argv: str,
    command: Sequence[str] = COCKPIT,
    env: Mapping[str, str | None] = MappingProxyType({}),
    timeout_s: float = 60.0,
) -> Said:
    """The command's end. `env` changes the environment; None takes a variable away."""
    done = subprocess.run(
        [*command, *argv],
        env=environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    return Said(done.returncode, out, err)


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    wanted = {**os.environ, **changes}
    return {name: value for name, value in wanted.items() if value is not None}


@dataclass(slots=True)
class Running:
    """A command that leads a separate process group, as a shell's foreground job does."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    """Standard error so far."""
    out: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)

    def saw(self, text: str, timeout_s: float = 240.0) -> str:
        """Wait for a line of either stream with that text; return the line."""
        deadline = time.monotonic() + timeout_s
        while True:
            for line in [*self.lines, *self.out]:
                if text in line:
                    return line
            assert self.process.poll() is None, self.lines
            assert time.monotonic() < deadline, (text, self.lines)
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        """To the complete group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def ends(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        for reader in self.readers:  # a process that it has left behind may have the streams
            reader.join(10)
        return code


@contextmanager
def running(*argv: str) -> Iterator[Running]:
    """Killed at the end of the block by SIGKILL, if it has not ended."""
    with subprocess.Popen(
        [*COCKPIT, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        command = Running(process)
        for stream, into in ((process.stderr, command.lines), (process.stdout, command.out)):
            reader = threading.Thread(target=_read, args=(stream, into), daemon=True)
            reader.start()
            command.readers.append(reader)
        try:
            yield command
        finally:
            process.kill()
            command.ends(10)


def _read(stream: Iterator[str], into: list[str]) -> None:
    for line in stream:
        into.append(line.rstrip("\n"))


def uid_of(name: str) -> str:
    """The marker of the cluster's processes, and the name of its directory under /tmp."""
    return str(json.loads(ClusterFiles.of(name).spec.read_text())["uid"])


def nothing_left(name: str, uid: str) -> None:
    """Check that there are neither files of the cluster, nor a process with its marker, paths or
    files.

    Independent of cockpit's own search, which is under test.
    """
    run_dir = f"/tmp/cockpit-{os.getuid()}/{uid}"
    assert not ClusterFiles.of(name).directory.exists()
    assert not Path(run_dir).exists()
    left = left_over(uid, run_dir)
    assert not left, left


def left_over(uid: str, run_dir: str) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                seen = _seen(process)
            except OSError:
                continue  # it has ended
            if f"{CLUSTER_VARIABLE}={uid}" in seen or run_dir in seen:
                found.append(f"{process.name}: {seen.replace(chr(0), ' ').split()}")
    return found


def _seen(process: Path) -> str:
    if "\nState:\tZ" in (process / "status").read_text():
        return ""
    links = [process / "cwd", *(process / "fd").iterdir()]
    text = (process / "environ").read_bytes() + b" " + (process / "cmdline").read_bytes()
    targets = [str(link.readlink()) for link in links if link.is_symlink()]
    return " ".join([text.decode(errors="replace"), *targets])
