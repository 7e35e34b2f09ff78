"""What is done with one pod: its end, its logs, commands in it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from cockpit.backends.local.pods.pod_logs import paths, read
from cockpit.backends.local.pods.process import ProcessId, end, environment_of
from cockpit.backends.ssh.agent.place import Place, lives, read_json
from cockpit.backends.ssh.agent.streams import input_ended, put
from cockpit.model.error import UsageError

COMMAND_CHECK_S = 0.1


def delete(place: Place, request: dict[str, Any]) -> None:
    """SIGTERM and the grace period, or with 0 SIGKILL of everything in the pod, at once."""
    with place.locked():
        record = place.pod(request["pod"], request["uid"])
        if request["grace_s"] > 0 and not place.file(request["pod"], "stop").exists():
            place.write(f"{request['pod']}.stop", time.time() + request["grace_s"])
    if request["grace_s"] <= 0:
        if "process" not in record:
            place.write(f"{request['pod']}.stop", 0.0)
        end(lambda: place.processes(record))
    put({})


def logs(place: Place, request: dict[str, Any]) -> None:
    """The pod's output as plain lines."""
    import asyncio  # here, as in `pod_logs`

    pod = request["pod"]
    record = read_json(place.file(pod, "json"))
    if record is None:
        place.pod(pod)
    files = paths(place.file(pod, "log"), place.directory(pod))

    def is_there() -> bool:
        return lives(read_json(place.file(pod, "json")) or {}) and not input_ended()

    async def send() -> None:
        async for line in read(
            files, follow=request["follow"], lines=request["lines"], is_there=is_there
        ):
            print(line, flush=request["follow"])

    asyncio.run(send())


def exec_(place: Place, request: dict[str, Any]) -> None:
    """Run a command in the pod; it ends with the pod, and with its connection."""
    argv, environment, directory = in_pod(place, request)
    try:
        child = subprocess.Popen(argv, env=environment, cwd=directory, stdin=subprocess.DEVNULL)
    except OSError as error:
        not_run(argv, error)
    code = None
    while code is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = child.wait(COMMAND_CHECK_S)
        if code is None and input_ended():
            child.kill()
    sys.exit(code if code >= 0 else 128 - code)


def attach(place: Place, request: dict[str, Any]) -> None:
    """Become the command, on the streams of this call."""
    argv, environment, directory = in_pod(place, request)
    os.chdir(directory)
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        not_run(argv, error)


def in_pod(place: Place, request: dict[str, Any]) -> tuple[list[str], dict[str, str], Path]:
    record = place.pod(request["pod"], request["uid"])
    environment = environment_of(ProcessId(*record["process"])) if "process" in record else {}
    if not environment:
        raise UsageError(f"Pod {request['pod']} has no processes yet.")
    environment |= request["env"]
    if "TERM" in os.environ:
        environment["TERM"] = os.environ["TERM"]
    return request["argv"], environment, place.directory(request["pod"])


def not_run(argv: list[str], error: OSError) -> NoReturn:
    """With a shell's codes for a command that is not there, or cannot be run."""
    print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
