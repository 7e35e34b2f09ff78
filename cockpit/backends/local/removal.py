"""Take a local cluster down completely, in any state."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from cockpit.backends.local import files as local_files
from cockpit.backends.local.files import ClusterFiles, RunFiles, clusters_dir
from cockpit.backends.local.pods.process import Found, PodTrace, end, find, is_alive
from cockpit.backends.local.spec import check_name
from cockpit.backends.local.state import read_status
from cockpit.model.error import CockpitError, ReplacedError, UsageError

POLL_S = 0.1
REMOVE_TIMEOUT_S = 5.0


def down(name: str, *, uid: str = "") -> int:
    """End every process of the cluster and remove all its files. Returns how many were ended.

    `uid`: of the cluster that was shown; raises ReplacedError where another one has its name now.

    Works in any state, and touches nothing that the cluster did not start. An
    interrupt takes effect when it is done. Raises UsageError when there is no such cluster.
    """
    files = ClusterFiles.of(check_name(name))
    if not files.directory.is_dir():
        names = ", ".join(path.name for path in _directories()) or "none"
        raise UsageError(f"There is no local cluster {name!r}.", f"Available: {names}.")
    with uninterrupted():
        return _remove(files, uid)


def _remove(files: ClusterFiles, wanted: str) -> int:
    uid, traces = _traces(files)
    if wanted and uid != wanted:
        raise ReplacedError("Local cluster", files.directory.name)
    ended = 0
    if uid:
        run = RunFiles.of(uid)
        root = str(run.directory)

        def operator() -> list[Found]:
            return [found for found in find(uid, traces, root) if not found.pod]

        def all_left() -> Collection[Found]:
            return find(uid, traces, root)

        # The operator first, so that it does not remake what is being ended.
        ended = end(operator) + end(all_left)
        ended += _remove_while_ending(run.directory, all_left)
        _remove_if_empty(run.directory.parent)
    local_files.remove(files.directory)
    _remove_if_empty(clusters_dir())
    return ended


def _remove_while_ending(directory: Path, left: Callable[[], Collection[Found]]) -> int:
    """Remove the directory, and kill the processes that still write to it. Return their number.

    A process between fork and exec has no marker yet, and is found by a file that it creates while
    the directory is being emptied.
    """
    ended = 0
    deadline = time.monotonic() + REMOVE_TIMEOUT_S
    while True:
        try:
            local_files.remove(directory)
        except CockpitError:
            if time.monotonic() > deadline:
                raise
            ended += end(left)
            time.sleep(POLL_S)
        else:
            return ended


def _traces(files: ClusterFiles) -> tuple[str, tuple[PodTrace, ...]]:
    """The cluster's uid (empty when it has none yet) and what is known of its pods' processes.

    A session counts only while its leader is the recorded process: the number may have become
    another process's since.
    """
    raw = local_files.read_json(files.spec)
    if raw is None:
        return "", ()
    # The only fields of the spec that are read, so that other versions' clusters can be deleted
    # too.
    uid = str(raw["uid"])
    try:
        status = read_status(files)
    except CockpitError:
        status = None  # the marker and the directories find the processes as well
    run = RunFiles.of(uid)
    return uid, tuple(
        PodTrace(
            pod=item.pod.name,
            directory=str(run.pod(item.pod.name)),
            session=item.process.pid if item.process and is_alive(item.process) else 0,
        )
        for item in (status.pods if status else ())
    )


def _directories() -> list[Path]:
    return sorted(clusters_dir().iterdir()) if clusters_dir().is_dir() else []


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return  # another cluster is in it, or it has been removed already


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C and similar signals to the end of the block.

    Ignored signals remain ignored. Python runs handlers in the main thread only: in other threads
    nothing has to be deferred.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    handlers = {n: h for n, h in before.items() if h not in (signal.SIG_IGN, None)}
    for number in handlers:
        signal.signal(number, keep)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
