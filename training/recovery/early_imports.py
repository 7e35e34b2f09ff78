"""A process that imports the libraries of the run while Ray starts on a pod that joins it.

Such a pod replaces a lost one, and the run may wait for it, or to grow. Ray starts no worker there
before its own processes have started, and only that worker starts the node's fork server, which
imports. So the `ray` of the training image, and the operator of a local cluster, start this process
beside `ray start`: `python -m training.recovery.early_imports ADDRESS DIRECTORY`, with the address
of Ray's key-value store. It imports what the newest job has written there, and waits in DIRECTORY
for the first worker that needs a fork server (`training.recovery.forkserver`). Then it becomes that
server. It imports at full speed, as no rank runs in its pod.

It has neither the code of the job nor its variables. So it imports installed libraries only, and
becomes a server only if the environment of the worker is its own, except for variables that no
library reads when it is imported. Ray does read its own ones then (`RayConfig`, in C++), such as
the id of the raylet, so it is imported by the server.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import select
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.free_memory import free_bytes
from training.recovery import private_socket
from training.recovery.fork_safety import reason_not_to_fork
from training.recovery.imports import import_all
from training.recovery.settings import SPARE_MEMORY_BYTES, SPARES, START_S, UNASKED_S

if TYPE_CHECKING:
    from training.recovery.libraries import Libraries

DIRECTORY = "COCKPIT_EARLY_IMPORTS"
"""The variable of a pod with the directory of such a process."""
JOB = "RAY_JOB_ID"
_SOCKET = "socket"
_SERVER = "training.recovery.forkserver"
_MAY_DIFFER = re.compile(
    "(RAY|__RAY|COCKPIT|SPT|MLFLOW_RUN|MLFLOW_TRACKING|MLFLOW_EXPERIMENT)_.*|PYTHON.*"
    "|TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S|_|PWD|OLDPWD|SHLVL"
)
"""Variables of Ray, of Python's start, of the shell, and those that MLflow reads in each call."""
_LEFT_OUT = ("training", "ray")
_PID_BYTES = 32


# -- in a worker that needs a fork server


def request_server(argv: Sequence[str], log: int) -> int:
    """Return the PID of the fork server that such a process of this pod became.

    `argv`: the arguments of `training.recovery.forkserver`. `log`: the file of its output. Waits
    for the imports, for START_S. Raises OSError if there is no such process, or if it does not fit.
    """
    if not (directory := os.environ.get(DIRECTORY)):
        raise FileNotFoundError(f"{DIRECTORY} is not set")
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as answer, Path(os.devnull).open("rb") as nothing:
        with (
            os.fdopen(writer, "wb") as output,
            private_socket.connected(Path(directory), _SOCKET, START_S) as process,
        ):
            message = {
                "argv": [*argv],
                "path": sys.path,
                "cwd": str(Path.cwd()),
                "environment": dict(os.environ),
            }
            files = [nothing.fileno(), output.fileno(), log]
            socket.send_fds(process, [json.dumps(message).encode()], files)
        if not select.select([answer], [], [], START_S)[0]:
            raise TimeoutError("it does not answer")
        pid = answer.read(_PID_BYTES)
    if not pid:
        raise ConnectionAbortedError("it does not fit")
    return int(pid)


# -- in the process that imports


def import_early(directory: Path, job: str, libraries: Libraries) -> None:
    """Import the libraries of the job, and become its fork server when a worker asks.

    Returns if none asks for UNASKED_S, or if this process cannot be one. Raises OSError.
    """
    if free_bytes() < SPARE_MEMORY_BYTES:
        print("too little memory is left: nothing is imported", flush=True)
        return
    own = {**libraries.variables, **os.environ, JOB: job}
    for name, value in libraries.variables.items():
        os.environ.setdefault(name, value)
    with private_socket.listen(directory / _SOCKET) as listener:  # a worker that asks early waits
        import_all([name for name in libraries.names if name.partition(".")[0] not in _LEFT_OUT])
        if "ray" in sys.modules:
            print("a library imports Ray: a new fork server imports", flush=True)
            return
        if reason := reason_not_to_fork():
            print(f"{reason}: a new fork server imports", flush=True)
            return
        listener.settimeout(UNASKED_S)
        try:
            client, _ = listener.accept()
        except TimeoutError:
            print("no worker needs a fork server", flush=True)
            return
    with client:
        raw, files, _, _ = socket.recv_fds(
            client, private_socket.MESSAGE_BYTES, private_socket.FILES
        )
    asked = json.loads(raw)
    if not _is_read(files[1]):
        print("the worker that asked for a fork server waits no longer", flush=True)
        return
    if others := _other_variables(own, {**libraries.variables, **asked["environment"]}):
        print(f"the job has other variables: {', '.join(others)}", flush=True)
        return
    _become_server(asked, files)


def _is_read(pipe: int) -> bool:
    """Whether the other end of this end of a pipe, for writing, is still open."""
    poll = select.poll()
    poll.register(pipe, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def _other_variables(own: Mapping[str, str], asked: Mapping[str, str]) -> list[str]:
    return sorted(
        name
        for name in own.keys() | asked.keys()
        if own.get(name) != asked.get(name) and (name == JOB or not _MAY_DIFFER.fullmatch(name))
    )


def _become_server(asked: Mapping[str, Any], files: Sequence[int]) -> None:
    """Run the fork server with the code of the job."""
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"])
    sys.path[:] = asked["path"]
    sys.argv = [_SERVER, *asked["argv"]]
    for name in [name for name in sys.modules if name.partition(".")[0] == "training"]:
        del sys.modules[name]
    runpy.run_module(_SERVER, run_name="__main__")


def main(gcs: str, directory: Path) -> None:
    from training.recovery.libraries import newest

    if SPARES and (found := newest(gcs)) is not None:
        import_early(directory, *found)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
