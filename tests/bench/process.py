"""Commands, timed: what they take of the clock and of the processors."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# An installed package has its compiled modules: a command is not to compile them each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
COCKPIT = str(Path(sys.executable).with_name("cockpit"))
RAY = str(Path(sys.executable).with_name("ray"))


@dataclass(frozen=True, slots=True)
class Took:
    wall_s: float
    cpu_s: float
    """User and system time of the process and of its reaped children."""


def run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Took:
    """Raises CalledProcessError, with the output, when the command fails."""
    began = time.perf_counter()
    with subprocess.Popen(
        argv,
        env=dict(os.environ) | dict(env or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as child:
        assert child.stdout is not None
        output = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    took = Took(time.perf_counter() - began, used.ru_utime + used.ru_stime)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, argv, output)
    return took


@contextmanager
def computing(processes: int) -> Iterator[None]:
    """Beside processes that only compute, each in its own session: Linux divides the CPU among
    sessions.
    """
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def cpu_of(pid: int) -> float:
    """The user and system time of a process that runs, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alternate(
    first: Sequence[str],
    second: Sequence[str],
    pairs: int,
    env: Mapping[str, str] | None = None,
) -> tuple[list[Took], list[Took]]:
    """A B A B …, after one of each that is not counted: what disturbs, disturbs both."""
    run(first, env), run(second, env)
    took = [(run(first, env), run(second, env)) for _ in range(pairs)]
    return [a for a, _ in took], [b for _, b in took]
