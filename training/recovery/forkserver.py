"""A process on each node that has imported the run's libraries and forks the run's workers.

Python, Ray and torch take 3 to 6 s of CPU to start. A fork of a process that has imported them
takes some milliseconds, and shares their memory until one of the two writes to it. So a restart no
longer waits for imports, and making a spare takes nothing from the ranks.

Ray starts each worker of the run with COMMAND, its `py_executable` (a setting of its runtime
environment): `python -m training.recovery.forkserver default_worker.py …`. The first one on a node
starts the fork server of the job, and waits until it is ready. Then the worker is a fork of it. If
the server cannot start, this process becomes the worker, as without cockpit.

The libraries are those of the driver, and later those of rank 0: the controller writes them into
Ray's key-value store (`training.recovery.libraries`).

Safe to fork: the server never connects to Ray, computes nothing and uses no GPU, so neither CUDA
nor gRPC nor OpenMP has threads there. OpenBLAS and jemalloc handle forks themselves, and
`training.recovery.fork_safety` keeps Ray's random identifiers apart.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from training.free_memory import free_bytes
from training.process_stat import stat
from training.recovery import early_imports, private_socket
from training.recovery.fork_safety import reason_not_to_fork
from training.recovery.imports import import_all, import_gently, reserved_memory
from training.recovery.settings import (
    CHECK_EVERY_S,
    READY_POLL_S,
    SPARE_MEMORY_BYTES,
    START_S,
    UNUSED_S,
)

if TYPE_CHECKING:
    from training.recovery.libraries import Libraries

COMMAND = f'"$(command -v {sys.executable} || command -v python3)" -m training.recovery.forkserver'
"""Ray passes it to a shell. Another node may have its Python somewhere else."""

IMPORTING = "importing"
"""The directory of those that import at the moment: see `reserved_memory`."""
_SERVE, _IMPORT = "--serve", "import"
_FOLDER = "cockpit-spares"
_RAYLET = "RAY_RAYLET_PID"
"""A raylet sets this variable and `early_imports.JOB` for each of its workers."""
_NICENESS, _NICENESS_OF_RAY = "RAY_worker_niceness", 15
"""What Ray adds to the niceness of each worker. The server takes it, and its forks have it then."""
FORKED = "_COCKPIT_FORKED"
"""A variable of each fork."""
_ANSWER_S = 5.0
_TAKEN = b"1"
"""What a worker sends when it has the PID of its fork, which starts only then."""


def directory_of(session: str | Path) -> Path:
    """Return the directory of spares in Ray's session directory; it is created.

    Raises PermissionError if another user made it.
    """
    path = Path(session, _FOLDER)
    path.mkdir(mode=0o700, exist_ok=True)
    os.close(private_socket.opened(path))
    return path


# -- in the process that Ray starts


def main(argv: Sequence[str]) -> None:
    """Have the worker forked that `argv` (a script and its arguments) describes, or become it."""
    given = dict(item.split("=", 1) for item in argv if "=" in item)
    if raylet := given.get("--raylet-name"):
        with suppress(OSError, subprocess.SubprocessError, ValueError):
            directory = directory_of(Path(raylet).parent.parent)  # of Ray's session
            if _ask(directory, argv):
                return
            if _start(directory, given.get("--gcs-address", "")) and _ask(directory, argv):
                return
    os.execv(sys.executable, [sys.executable, *argv])


def add(directory: Path, names: Sequence[str]) -> None:
    """In a fork: let the server import these libraries too, for later forks. Raises OSError."""
    with private_socket.connected(directory, _name(), _ANSWER_S) as server:
        server.send(json.dumps({_IMPORT: [*names]}).encode())


def _start(directory: Path, gcs: str) -> bool:
    """Start the server of this job on this node unless there is one; wait until it is ready.

    `gcs` is the address of Ray's key-value store. Returns False if there can be no server: the node
    has too little memory, the libraries are not known, or a process with them cannot be forked.
    Also after START_S. Raises OSError.
    """
    name, until_s = _name(), time.monotonic() + START_S
    with (directory / f"{name}.starting").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)  # for as long as others wait for the server
        if _is_ready(directory, name):
            return True
        is_late = time.monotonic() > until_s
        if is_late or _unsafe(directory).exists() or free_bytes() < SPARE_MEMORY_BYTES:
            return False
        with (directory / f"{name}.log").open("a") as log:
            argv = [_SERVE, str(directory), gcs]
            try:
                server = early_imports.request_server(argv, log.fileno())
            except OSError as error:
                print(f"imported nothing early: {error}", file=log, flush=True)
                server = _started(argv, log)
        while time.monotonic() < until_s and _is_alive(server):
            if _is_ready(directory, name):
                return True
            time.sleep(READY_POLL_S)
        return False


def _started(argv: Sequence[str], log: IO[str]) -> int:
    process = subprocess.run(
        [sys.executable, "-m", __spec__.name, *argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        check=True,
    )
    return int(process.stdout)


def _unsafe(directory: Path) -> Path:
    """Return the file that exists if the libraries cannot be forked: it is not tried again."""
    return directory / f"{_name()}.unsafe"


def _ask(directory: Path, argv: Sequence[str]) -> bool:
    """Return whether the server forked the worker."""
    request = {"argv": [*argv], "environment": dict(os.environ), "cwd": str(Path.cwd())}
    try:
        with private_socket.connected(directory, _name(), _ANSWER_S) as server:
            socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
            return bool(server.recv(16)) and bool(server.send(_TAKEN))
    except OSError:
        return False


def _name() -> str:
    """Return the name of the socket: several nodes on one machine may share the session."""
    return f"{os.environ.get(early_imports.JOB)}-{os.environ.get(_RAYLET)}"


def _is_ready(directory: Path, name: str) -> bool:
    with suppress(OSError), private_socket.connected(directory, name, _ANSWER_S):
        return True
    return False


# -- the server


@dataclass(frozen=True, slots=True)
class Request:
    """A worker to start: a script with its arguments, and what the process has that asks.

    Or, with `libraries`, another server that imports these too.
    """

    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    files: tuple[int, ...] = ()
    """Its standard input, output and errors."""
    libraries: tuple[str, ...] = ()

    def close(self) -> None:
        for file in self.files:
            os.close(file)


def serve(directory: Path, libraries: Libraries | None) -> Request | None:
    """Import the libraries and fork workers, until the raylet ends or no worker is left.

    Returns twice: None in the server, and in each fork what the fork has to become.
    """
    if libraries is None:
        print("the libraries of the run are not known", flush=True)
        return None
    with reserved_memory(directory / IMPORTING) as is_reserved:
        if not is_reserved:
            print("too little memory is left: workers import for themselves", flush=True)
            return None
        for name, value in libraries.variables.items():
            os.environ.setdefault(name, value)
        (import_gently if libraries.gently else import_all)(libraries.names)
    if reason := reason_not_to_fork():
        print(f"{reason}: workers import for themselves", flush=True)
        _unsafe(directory).touch()
        return None
    parent = None
    while (request := _fork_workers(directory, parent)) is not None and request.libraries:
        parent = os.getppid()
        import_gently(request.libraries)
        if reason := reason_not_to_fork():
            print(f"{reason}: the server without them remains", flush=True)
            return None
    return request


def _fork_workers(directory: Path, parent: int | None) -> Request | None:
    """As `serve`, with the libraries that this process has.

    A fork that imports more takes the place of this process, which keeps the workers that it has:
    an import can last for minutes while ranks want the CPU. `parent` is the server whose place this
    one takes: workers of it count too.
    """
    gc.collect()
    gc.freeze()  # a collection in a fork would otherwise copy all pages
    raylet, path = int(os.environ[_RAYLET]), directory / _name()
    workers, successor, used_s = set[int](), 0, time.monotonic()

    def reap(*_: object) -> None:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    signal.signal(signal.SIGCHLD, reap)
    with private_socket.listen(path) as listener:
        listener.settimeout(CHECK_EVERY_S)
        own = path.stat().st_ino
        while _is_alive(raylet) and time.monotonic() - used_s < UNUSED_S:
            if (accepted := _accept(listener)) is not None:
                client, request = accepted
                if request.libraries and successor:
                    client.close()
                    continue
                pid = _fork(client, request)
                if pid == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    return request
                if pid and request.libraries:
                    successor = pid
                elif pid:
                    workers.add(pid)
            workers = {pid for pid in workers if _is_alive(pid)}
            if workers or os.getppid() == parent:
                used_s = time.monotonic()
    with suppress(OSError):
        if path.stat().st_ino == own:
            path.unlink()
    return None


def _accept(listener: socket.socket) -> tuple[socket.socket, Request] | None:
    """Return the next client and its request, or None if there was no request for a while."""
    try:
        client, _ = listener.accept()
    except OSError:
        return None
    with suppress(OSError):  # a client that has ended
        if (request := _receive(client)) is not None:
            return client, request
    client.close()
    return None


def _receive(client: socket.socket) -> Request | None:
    """Return None for a client that only wants to know whether the server is ready."""
    client.settimeout(_ANSWER_S)
    raw, files, _, _ = socket.recv_fds(client, private_socket.MESSAGE_BYTES, private_socket.FILES)
    if not raw:
        return None
    given = json.loads(raw)
    if _IMPORT in given:
        return Request(libraries=tuple(given[_IMPORT]))
    return Request(tuple(given["argv"]), given["environment"], given["cwd"], tuple(files))


def _fork(client: socket.socket, request: Request) -> int | None:
    """Return the PID of the fork, 0 in the fork itself, and None if it could not be made."""
    with client, suppress(OSError):
        if pid := os.fork():
            request.close()
            with suppress(OSError):  # the client has ended
                client.send(str(pid).encode())
        elif not request.libraries and not _is_taken(client):
            os._exit(0)
        return pid
    request.close()
    return None


def _is_taken(client: socket.socket) -> bool:
    """Whether the worker that asked for this fork still waits for it.

    A worker that has waited for _ANSWER_S starts itself: two would have the same identifier.
    Exactly one of the two continues, also if both were stopped for a while: after the shutdown the
    worker cannot send any more, and what it sent before is still read.
    """
    with suppress(OSError):
        return bool(client.recv(len(_TAKEN)))
    with suppress(OSError):
        client.shutdown(socket.SHUT_RD)
        return bool(client.recv(len(_TAKEN), socket.MSG_DONTWAIT))
    return False


def become(request: Request) -> None:
    """In the fork: run the script as Python would."""
    os.setpgid(0, 0)  # Ray kills the process group of a worker that does not end, with all in it
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for target, file in enumerate(request.files):
        os.dup2(file, target)
    request.close()
    os.environ.clear()
    os.environ.update(request.environment)
    os.environ.update({_NICENESS: "0", FORKED: "1"})
    os.chdir(request.cwd)
    sys.argv = list(request.argv)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    new = [path for path in given if path and path not in sys.path]
    sys.path[:] = [str(Path(sys.argv[0]).parent), *new, *sys.path[1:]]
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()  # forks have the state of their parent; `random` handles it itself
    runpy.run_path(sys.argv[0], run_name="__main__")


def _is_alive(pid: int) -> bool:
    try:
        return stat(pid)[0] != "Z"
    except OSError:
        return False


def run(directory: Path, read: Callable[[], Libraries | None]) -> None:
    """Serve in another process, whose PID is printed, and become a worker in its forks.

    It must not be the child of a worker: Ray ends the children of a worker that ends.
    """
    if pid := os.fork():
        print(pid, flush=True)
        os._exit(0)
    os.setsid()
    os.dup2(2, 1)
    os.nice(int(os.environ.get(_NICENESS, _NICENESS_OF_RAY)))
    if (worker := serve(directory, read())) is not None:
        become(worker)


if __name__ == "__main__":
    if sys.argv[1:2] == [_SERVE]:
        from training.recovery.libraries import read

        run(Path(sys.argv[2]), partial(read, sys.argv[3], os.environ[early_imports.JOB]))
    else:
        main(sys.argv[1:])
