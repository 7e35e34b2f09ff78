"""Effects that last: a process that stays behind in the pod, the keeper, ends each after its time.

Before it begins it writes what it has to undo to a file named by a key: `release` finds it there,
also what a keeper that was killed has left.
"""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cockpit.drills.pod_scripts.linux.process import (
    IS_LOCAL,
    Failed,
    Process,
    close_streams,
    is_alive,
    living,
    parsed,
    send,
)

RELEASE_S = 5.0
"""How long the keeper may take to end what it holds, until that is done without it."""

Effect = Generator[float, None, None]
"""Apply the effect; yields the seconds until the next call, and is closed at the end."""
Scores = Sequence["tuple[Process, int]"]
"""Processes, each with the oom_score_adj that it had."""


def hold(
    key: str,
    seconds: float,
    effect: Effect,
    stopped: Sequence[Process] = (),
    scores: Scores = (),
) -> None:
    """Return once the effect has begun, in a separate process; raise Failed if it could not.

    `stopped` and `scores` are what remains to be undone if the keeper process is killed.
    """
    path = file(key)
    if path.exists():
        if not json.loads(path.read_text()):
            path.unlink()
            raise Failed("it was undone before it began")
        raise Failed(f"{key} is held already")
    # Blocked, not handled: the signal ends a wait, and interrupts nothing else.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(read_end)
            keep(path, seconds, effect, stopped, scores, write_end)
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    # One message, not all until the end: what the effect has started holds the pipe open as well.
    text = os.read(read_end, 4096).decode()
    os.close(read_end)
    if text.startswith(PermissionError.__name__):
        raise PermissionError(text)
    if text != "begun":
        raise Failed(text or "it did not begin")


def keep(
    path: Path,
    seconds: float,
    effect: Effect,
    stopped: Sequence[Process],
    scores: Scores,
    begun: int,
) -> None:
    """The keeper, which never returns."""
    text, is_own = b"it has ended", False
    try:
        close_streams()
        until = time.monotonic() + seconds
        write(path, stopped, scores)
        is_own = True
        for pause_s in effect:
            if text:
                os.write(begun, b"begun")
                os.close(begun)
                text = b""
            left_s = min(pause_s, until - time.monotonic())
            if left_s <= 0 or signal.sigtimedwait({signal.SIGTERM}, left_s):
                break
        effect.close()
        path.unlink()
    except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
        text = text and f"{type(error).__name__}: {error}".encode()
    finally:
        if text:
            os.write(begun, text)
            if is_own:
                path.unlink(missing_ok=True)
        os._exit(0)


def release(key: str, refuse: bool = False) -> str:
    """End it now, if it is active; what was done, in a line. It may be called twice.

    With `refuse`, what has not begun may not begin later: an empty record takes its key.
    """
    path = file(key)
    if refuse:
        with suppress(FileExistsError):
            publish(path, {})
            return "it may not begin any more"
    try:
        state = json.loads(path.read_text())
    except FileNotFoundError:
        return "it had ended"
    if not state:
        if not refuse:
            path.unlink(missing_ok=True)
        return "it had not begun"
    keeper = parsed(state["keeper"])
    if send(keeper, signal.SIGTERM):
        deadline = time.monotonic() + RELEASE_S
        while is_alive(keeper) and time.monotonic() < deadline:
            time.sleep(0.01)
        send(keeper, signal.SIGKILL)
    if not path.exists():
        return "ended before its time"
    for text in state["stopped"]:
        send(parsed(text), signal.SIGCONT)
    for text, score in state["scores"]:
        set_score(parsed(text), score)
    path.unlink()
    return "ended; its keeper had been killed"


def is_scored(process: Process) -> bool:
    """Whether a fault that lasts has changed this process's score, and will set it back."""
    for path in file("any").parent.glob("cockpit-*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            if str(process) in [text for text, _ in json.loads(path.read_text())["scores"]]:
                return True
    return False


def score_of(process: Process) -> int:
    return int(Path(f"/proc/{process.pid}/oom_score_adj").read_text())


def set_score(process: Process, score: int) -> None:
    """How readily the kernel kills it when memory is short: -1000 to 1000, the first of all."""
    try:
        with Path(f"/proc/{process.pid}/oom_score_adj").open("w") as opened:
            if is_alive(process):  # and open files are its own, even if its number is reused later
                opened.write(str(score))
    except (FileNotFoundError, ProcessLookupError):
        return  # it has ended


def file(key: str) -> Path:
    """In the pod's directory: the working directory of a local pod, or the container's /tmp."""
    if not re.fullmatch(r"[\w.-]+", key):
        raise Failed(f"{key!r} is no key")
    return (Path.cwd() if IS_LOCAL else Path(tempfile.gettempdir())) / f"cockpit-{key}.json"


def write(path: Path, stopped: Sequence[Process], scores: Scores) -> None:
    state = {
        "keeper": str(living(os.getpid())),
        "stopped": [str(process) for process in stopped],
        "scores": [(str(process), score) for process, score in scores],
    }
    publish(path, state)


def publish(path: Path, record: Mapping[str, object]) -> None:
    """The file appears with all that is in it. Raises FileExistsError where there is one."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(part, flags, 0o600), "w") as opened:
        json.dump(record, opened)
    try:
        os.link(part, path)
    finally:
        part.unlink()
